"""What was recorded of a remote is seen again: the same pixels, inputs, rewards and actions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlwire
from rlwire.adapters.rfb.client import RfbClient
from rlwire.adapters.rfb.server import Display, RfbServer
from rlwire.adapters.universe.fbs import FbsWriter, read_fbs
from rlwire.adapters.universe.recording import RecordingProxy
from rlwire.adapters.universe.replay import Recording, Replay
from rlwire.codecs.rewarder import AgentAction, EnvReward
from rlwire.codecs.rfb.decoder import RectangleDecoder
from rlwire.codecs.rfb.encoder import RectangleEncoder
from rlwire.codecs.rfb.encodings import Encoding
from rlwire.codecs.rfb.framebuffer import Framebuffer
from rlwire.codecs.rfb.messages import KeyEvent, PointerEvent
from rlwire.codecs.rfb.pixels import RGB565, RGB888, PixelFormat
from rlwire.errors import DecodeError
from rlwire.protocols import URL, parse_url
from tests.waiting import eventually

pytest.importorskip("gymnasium")

SIZE = (40, 56)


def ended(path: Path) -> bool:
    return path.exists() and b'{"stop": ' in path.read_bytes()[-60:]


def frame(number: int) -> Any:
    made = np.random.default_rng(number // 3).integers(0, 256, (*SIZE, 3), np.uint8)
    made[: 4 + number, : 8 + number] = (number, 100, 200)
    return made


def record(folder: Path, count: int = 12, **options: Any) -> list[Any]:
    """Record a viewer of a display, and return all that it saw."""
    display = Display(SIZE[1], SIZE[0])
    auth = options.get("auth")
    seen = []
    remote = URL("universe", "127.0.0.1", pixels=0, only_pixels=True)
    with RfbServer(display, "127.0.0.1:0", auth=auth) as server:
        there = remote.replace(pixels=server.address.port)
        with RecordingProxy(there, remote, folder) as proxy:
            where = str(parse_url(proxy.url).address)
            with RfbClient(where, **options) as viewer:
                for number in range(count):
                    display.show(frame(number))
                    viewer.key("a", bool(number % 2))
                    viewer.update(20)
                    seen.append(viewer.snapshot())
                # The first update may have been of what the display showed before.
                last = as_seen(frame(count - 1), options.get("pixel_format", RGB888))
                for _ in range(count):
                    if not np.array_equal(seen[-1], last):
                        viewer.update(20)
                        seen.append(viewer.snapshot())
                np.testing.assert_array_equal(seen[-1], last)
                viewer.pointer(3, 4, 1)
                # Its bytes have come when the display has heard it.
                eventually(lambda: server.statistics().get("inputs") == count + 1)
    eventually(lambda: ended(folder / "1" / "server.fbs") and ended(folder / "1" / "client.fbs"))
    return seen


def as_seen(picture: Any, pixel_format: PixelFormat) -> Any:
    """The picture in the colours of that format."""
    area = (0, 0, SIZE[1], SIZE[0])
    _, raw = RectangleEncoder(pixel_format, encoding=Encoding.RAW).encode(picture, [area])
    framebuffer = Framebuffer(SIZE[1], SIZE[0])
    RectangleDecoder(framebuffer, pixel_format).decode(raw)
    return framebuffer.pixels


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"auth": "sesame"},
        {"encodings": [Encoding.RAW]},
        {"encodings": [Encoding.ZRLE], "pixel_format": RGB888},
        {"encodings": [Encoding.HEXTILE], "pixel_format": RGB565},
    ],
    ids=["tight", "password", "raw", "zrle", "hextile"],
)
def test_the_same_pixels(tmp_path: Path, options: dict[str, Any]) -> None:
    seen = record(tmp_path, **options)
    recording = Recording(tmp_path / "1")
    frames = list(recording.frames())
    assert len(frames) > 1
    # The viewer may have taken two updates for one, and so may a block of the file.
    pixel_format = options.get("pixel_format", RGB888)
    shown = {as_seen(frame(number), pixel_format).tobytes() for number in range(12)}
    assert {each.what.tobytes() for each in frames[1:]} <= {*shown, bytes(3 * SIZE[0] * SIZE[1])}
    assert frames[-1].what.shape == (*SIZE, 3)
    np.testing.assert_array_equal(frames[-1].what, seen[-1])
    times = [moment.at for moment in recording]
    assert times == sorted(times)


def test_the_same_inputs(tmp_path: Path) -> None:
    record(tmp_path, 4)
    inputs = [moment.what for moment in Recording(tmp_path / "1").inputs()]
    assert inputs == [
        *(KeyEvent(97, bool(number % 2)) for number in range(4)),
        PointerEvent(3, 4, 1),
    ]


def test_a_recording_is_served_as_an_environment(tmp_path: Path) -> None:
    seen = record(tmp_path)
    replay = Replay(tmp_path / "1", fps=1000)
    last, count = None, 0
    replay.reset()
    truncated = False
    while not truncated:
        last, reward, done, truncated, _ = replay.step(0)
        count += 1
        assert (reward, done) == (0.0, False)
    assert count > 1
    np.testing.assert_array_equal(last, seen[-1])
    first, _ = replay.reset()  # again from the beginning
    assert first.shape == (*SIZE, 3)
    with rlwire.serve(replay, "universe://127.0.0.1:0+0", rate=1000) as server:
        where = str(parse_url(server.url).pixels_address)
        with RfbClient(where) as viewer:
            eventually(lambda: viewer.update(20) is not None and (
                viewer.snapshot() == seen[-1]).all())  # fmt: skip


def rewards(folder: Path, *lines: str) -> Path:
    (folder / "1").mkdir()
    text = "".join(f"{line}\n" for line in ('{"version": 1}', *lines))
    (folder / "1" / "rewards.demo").write_text(text)
    return folder / "1"


REWARD = (
    '{"timestamp": 2.5, "message": {"method": "v0.env.reward", "headers": {"sent_at": 1, '
    '"message_id": 0, "episode_id": "1"}, "body": {"reward": 1.5, "done": true, '
    '"info": {"a": 1}}}, "from_rewarder": true}'
)
ACTION = (
    '{"timestamp": 2.0, "message": {"method": "v0.agent.action", "headers": {"sent_at": 1, '
    '"message_id": 0}, "body": {"action": [["KeyEvent", 97, true]]}}, "from_rewarder": false}'
)


def test_rewards_and_actions(tmp_path: Path) -> None:
    folder = rewards(tmp_path, ACTION, REWARD)
    action, reward = Recording(folder)
    assert (action.at, reward.at) == (2.0, 2.5)
    assert isinstance(action.what, AgentAction)
    assert action.what.action == (("KeyEvent", 97, True),)
    assert isinstance(reward.what, EnvReward)
    assert (reward.what.reward, reward.what.done, reward.what.info) == (1.5, True, {"a": 1})


def test_an_episode_of_the_replay_ends_where_the_recorded_one_did(tmp_path: Path) -> None:
    seen = record(tmp_path, 6)
    folder = tmp_path / "1"
    times = [moment.at for moment in Recording(folder).frames()]
    middle = REWARD.replace("2.5", repr((times[0] + times[-1]) / 2))
    (folder / "rewards.demo").write_text(f'{{"version": 1}}\n{middle}\n')
    replay = Replay(folder, fps=2000)
    replay.reset()
    total, done = 0.0, False
    while not done:
        _, reward, done, truncated, info = replay.step(0)
        total += reward
        assert not truncated
    assert (total, info) == (1.5, {"a": 1})
    replay.reset()  # goes on
    while not truncated:
        last, reward, done, truncated, _ = replay.step(0)
        assert (reward, done) == (0.0, False)
    np.testing.assert_array_equal(last, seen[-1])


def test_lines_that_are_none(tmp_path: Path) -> None:
    folder = rewards(tmp_path, ACTION, REWARD)
    path = folder / "rewards.demo"
    whole = path.read_text()
    path.write_text(whole[:-10])  # whoever wrote it was killed
    assert len(list(Recording(folder))) == 1
    for wrong in ("x", "{}", '{"timestamp": 1, "message": {"method": 3}}', "[]"):
        path.write_text(f'{{"version": 1}}\n{wrong}\n')
        with pytest.raises(DecodeError):
            list(Recording(folder))
    path.write_text('{"version": 2}\n')
    with pytest.raises(DecodeError, match="is of version 2"):
        list(Recording(folder))


def test_pixels_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no server\.fbs, and no rewards\.demo"):
        Recording(tmp_path)
    with pytest.raises(ValueError, match="has no pixels"):
        Replay(rewards(tmp_path))
    record(tmp_path / "more", 3)
    path = tmp_path / "more" / "1" / "server.fbs"
    blocks = list(read_fbs(str(path)))
    with path.open("wb") as file:
        writer = FbsWriter(file, blocks[0][0])
        for at, data in (*blocks, (blocks[-1][0], b"\xff" * 64)):
            writer.write(data, at)
    with pytest.raises(DecodeError):
        list(Recording(path.parent).frames())
