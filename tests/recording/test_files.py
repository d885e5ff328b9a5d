"""Files that are cut, damaged, foreign or hostile."""

from __future__ import annotations

import contextlib
import random
import struct
import tracemalloc

import pytest

import rlwire
from rlwire.errors import DecodeError, RlwireError
from rlwire.recording.files import packets
from rlwire.transports import recorder

pytest.importorskip("mcap")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Return the bytes of a recording of several chunks."""
    path = tmp_path_factory.mktemp("recorded") / "run.mcap"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorder, "CHUNK", 2000)
        with rlwire.serve("gym:CartPole-v1", "dm-env-rpc://127.0.0.1:0") as server:
            env = rlwire.make(server.url, record=path)
            for _ in range(20):
                env.reset()
                env.step(0)
            env.close()
        for each in list(recorder.Recorder._all.values()):
            each.finish()
    return path.read_bytes()


def listed(tmp_path, data):
    path = tmp_path / "file.mcap"
    path.write_bytes(data)
    return [(each.from_client, each.data, each.ended) for each in packets(str(path))]


def test_a_file_cut_anywhere_gives_what_it_has(recorded, tmp_path, caplog):
    whole = listed(tmp_path, recorded)
    assert not caplog.records
    most = 0
    for size in (*range(8, len(recorded), len(recorded) // 60), len(recorded) - 9):
        found = listed(tmp_path, recorded[:size])
        assert found == whole[: len(found)]
        most = max(most, len(found))
    assert most == len(whole)
    assert "cut" in caplog.text


def test_a_foreign_file_is_refused_in_one_line(tmp_path):
    for data in (b"", b"PK\3\4" + bytes(100), b"\x89MCAP1\r\n" + bytes(50), b"rlwire" * 40):
        with pytest.raises(DecodeError) as caught:
            listed(tmp_path, data)
        assert "file.mcap" in str(caught.value)
        assert "\n" not in str(caught.value)
        assert caught.value.offset is not None


def written(path, topic, data, packed="lz4"):
    """Write a file with one message, as rlwire's; return its bytes."""
    from mcap.writer import CompressionType, Writer

    kinds = {"lz4": CompressionType.LZ4, "zstd": CompressionType.ZSTD, "": CompressionType.NONE}
    with open(path, "wb") as file:
        writer = Writer(file, compression=kinds[packed])
        writer.start()
        facts = {"protocol": "rlx", "side": "client", "peer": "x"}
        writer.add_message(writer.register_channel(topic, "rlx", 0, facts), 1, data, 1)
        writer.finish()
    return path.read_bytes()


@pytest.mark.parametrize(
    ("topic", "data"),
    [
        ("/camera", b"x"),
        ("/1/events", b"[]"),
        ("/1/events", b'{"dropped": Infinity}'),
        ("/1/events", b"[" * 100_000),
    ],
)
def test_another_programs_recording_is_refused(topic, data, tmp_path):
    written(tmp_path / "run.mcap", topic, data)
    with pytest.raises(DecodeError, match=topic if topic == "/camera" else "event") as caught:
        list(packets(str(tmp_path / "run.mcap")))
    assert caught.value.offset is not None


def test_mutated_files_raise_our_errors_alone(recorded, tmp_path):
    rng = random.Random(29)
    for _ in range(400):
        data = bytearray(recorded)
        for _ in range(rng.choice((1, 1, 3, 20))):
            at = rng.randrange(len(data))
            data[at] = rng.randrange(256)
        if rng.random() < 0.3:
            at = rng.randrange(8, len(data) - 8)
            data[at : at + 8] = struct.pack("<Q", rng.choice((0, 2**31, 2**62, 2**64 - 1)))
        with contextlib.suppress(RlwireError):
            listed(tmp_path, bytes(data))


def test_a_chunk_that_says_it_is_huge(recorded, tmp_path):
    at = recorded.index(b"lz4") - 4 - 4 - 8  # before: the size, the CRC, the length of "lz4"
    data = bytearray(recorded)
    data[at : at + 8] = struct.pack("<Q", 2**60)
    with pytest.raises(RlwireError, match="expanded"):
        listed(tmp_path, bytes(data))


@pytest.mark.parametrize("packed", ["lz4", "zstd", ""])
def test_other_compressions_and_bombs(packed, tmp_path):
    data = bytearray(written(tmp_path / "run.mcap", "/1/client", bytes(10**6), packed))
    (found,) = listed(tmp_path, data)
    assert found[1] == bytes(10**6)
    if not packed:
        return
    at = data.index(packed.encode()) - 16
    data[at : at + 8] = struct.pack("<Q", 1000)
    tracemalloc.start()
    with pytest.raises(DecodeError, match="1000"):
        listed(tmp_path, data)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 500_000
