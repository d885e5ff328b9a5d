"""Files that are cut, damaged, foreign or hostile."""

import contextlib
import itertools
import json
import os
import random
import struct
from collections import deque

import pytest

import rlwire
from rlwire.cli import main
from rlwire.errors import DecodeError, LimitExceeded, RlwireError
from rlwire.limits import Limits
from rlwire.recording import recorder
from rlwire.recording.files import packets
from rlwire.recording.reading import messages
from rlwire.testing import replay
from tests.memory import at_most
from tests.raising import raised
from tests.recording.captures import finish

writers = pytest.importorskip("mcap.writer")


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
        finish()
    return path.read_bytes()


def listed(tmp_path, data):
    path = tmp_path / "file.mcap"
    path.write_bytes(data)
    return [(each.from_client, each.data, each.ended) for each in packets(str(path))]


def test_truncated_file_is_read_up_to_the_cut(recorded, tmp_path, caplog):
    whole = listed(tmp_path, recorded)
    assert not caplog.records
    most = 0
    for size in (*range(8, len(recorded), len(recorded) // 60), len(recorded) - 9):
        found = listed(tmp_path, recorded[:size])
        assert found == whole[: len(found)]
        most = max(most, len(found))
    assert most == len(whole)
    assert "cut" in caplog.text


def test_foreign_file_is_rejected_with_a_one_line_error(tmp_path):
    for data in (b"", b"PK\3\4" + bytes(100), b"\x89MCAP1\r\n" + bytes(50), b"rlwire" * 40):
        caught = raised(DecodeError, listed, tmp_path, data)
        assert "file.mcap" in str(caught)
        assert "\n" not in str(caught)
        assert caught.offset is not None


def written(path, topic, data, packed="lz4"):
    """Write a file with one message, as rlwire's; return its bytes."""
    with open(path, "wb") as file:
        writer = writers.Writer(file, compression=writers.CompressionType[packed.upper() or "NONE"])
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
def test_recording_of_another_program_is_rejected(topic, data, tmp_path):
    written(tmp_path / "run.mcap", topic, data)
    assert raised(DecodeError, list, packets(str(tmp_path / "run.mcap"))).offset is not None


def test_mutated_files_raise_only_rlwire_errors(recorded, tmp_path):
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


def chunks(data):
    """Return where each chunk's record begins, and its length."""
    found, at = [], 8
    while at < len(data) - 8:
        opcode, length = struct.unpack_from("<BQ", data, at)
        found += [(at, 9 + length)] if opcode == 6 else []
        at += 9 + length
    return found


DAMAGE = {
    "data": lambda data, at, size: data.__setitem__(at + size // 2, data[at + size // 2] ^ 1),
    "crc": lambda data, at, size: data.__setitem__(at + 33, data[at + 33] ^ 1),
    "kind": lambda data, at, size: data.__setitem__(at, 99),
    "longer than the file": lambda data, at, size: data.__setitem__(at + 8, 1),
    "longer": lambda data, at, size: data.__setitem__(at + 1, data[at + 1] ^ 128),
    "huge": lambda data, at, size: data.__setitem__(slice(at + 25, at + 33), b"\xff" * 8),
    "compression": lambda data, at, size: data.__setitem__(at + 37, 255),
}


@pytest.mark.parametrize("ended", [True, False], ids=["with a summary", "killed"])
@pytest.mark.parametrize("kind", DAMAGE)
def test_damaged_chunk_is_skipped_and_its_packets_counted(kind, ended, recorded, tmp_path, caplog):
    whole, places = listed(tmp_path, recorded), chunks(recorded)
    for number in range(1 if ended else 2, len(places) - 1):  # of a killed process, the channels
        data = bytearray(recorded)
        if not ended:
            del data[sum(places[-1]) :]
            if kind in ("longer than the file", "longer"):
                continue  # nothing says where the next record begins
        DAMAGE[kind](data, *places[number])
        (tmp_path / "file.mcap").write_bytes(data)
        caplog.clear()
        found = list(packets(str(tmp_path / "file.mcap")))
        lost = len(whole) - len(found)
        assert lost > 0 or kind == "longer"
        assert lost < len(whole) / 2
        missing = iter(whole)
        assert all((each.from_client, each.data, each.ended) in missing for each in found)
        assert f"with {lost} packets" in caplog.text
        gaps = [each.gap for each in found if each.gap]
        assert (len(gaps), sum(gaps)) == (2 * (lost > 0), lost)


def test_damaged_recording_can_be_inspected_and_replayed(recorded, tmp_path, capsys):
    path, data = tmp_path / "file.mcap", bytearray(recorded)
    at, size = chunks(recorded)[2]
    data[at + size // 2] ^= 1
    path.write_bytes(data)
    assert main(["inspect", str(path), "--json"]) == 0
    kinds = [json.loads(line)["kind"] for line in capsys.readouterr().out.splitlines()]
    assert kinds.index("gap") < len(kinds) - kinds[::-1].index("StepResponse")
    assert kinds[-1] == "closed"
    episodes = [each for message in messages(packets(str(path))) for each in message.episodes]
    assert 10 < len(episodes) < 20
    with rlwire.serve("gym:CartPole-v1", "dm-env-rpc://127.0.0.1:0") as server:
        replayed = replay(str(path), server.url, ignore=["*"])
    assert 0 < replayed < kinds.count("StepResponse")


@pytest.mark.parametrize("packed", ["lz4", "zstd", ""])
def test_reader_accepts_lz4_and_zstd_but_no_decompression_bomb(packed, tmp_path):
    data = bytearray(written(tmp_path / "run.mcap", "/1/client", bytes(10**6), packed))
    (found,) = listed(tmp_path, data)
    assert found[1] == bytes(10**6)
    if not packed:
        return
    at = data.index(packed.encode()) - 16
    data[at : at + 8] = struct.pack("<Q", 1000)
    with at_most(500_000), pytest.raises(DecodeError, match="1000"):
        listed(tmp_path, data)


def test_chunks_of_a_file_share_one_decompression_budget(tmp_path):
    with open(tmp_path / "run.mcap", "wb") as file:
        writer = writers.Writer(file, compression=writers.CompressionType.ZSTD, chunk_size=1)
        writer.start()
        for number in range(1, 41):
            facts = {"protocol": "rlx", "side": "client", "peer": "x"}
            channel = writer.register_channel(f"/{number}/client", "rlx", 0, facts)
            writer.add_message(channel, 1, b"999999:" + bytes(500_000), 1)
        writer.finish()
    size = os.path.getsize(tmp_path / "run.mcap")
    assert size < 16_000
    found = packets(str(tmp_path / "run.mcap"), Limits(received=2**20, expanded=2**20))
    count = itertools.count()
    assert raised(LimitExceeded, deque, zip(found, count, strict=False), 0).limit == "expanded"
    assert next(count) <= (2**20 + 256 * size) / 500_000
