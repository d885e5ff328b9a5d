"""What a search has found worth keeping is replayed, decoder by decoder."""

import sys
from pathlib import Path

import pytest

from tests.raising import raised

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
try:
    import decoders
    import messages
finally:
    sys.path.remove(str(HERE))

pytest.importorskip("cryptography")


@pytest.mark.parametrize("name", decoders.DECODERS)
def test_replay(name):
    feed = decoders.DECODERS[name]
    files = sorted((HERE / "corpus" / name).iterdir())
    assert files
    for file in files:
        print(file)  # pytest shows it for the one that fails
        feed(file.read_bytes())
    for seed in messages.seeds(name):
        feed(seed)


def test_the_corpus_is_small():
    sizes = {file: file.stat().st_size for file in (HERE / "corpus").rglob("*") if file.is_file()}
    assert sum(sizes.values()) < 500_000
    assert {file.parent.name for file in sizes} == set(decoders.DECODERS)


def test_a_wrong_decoder_is_seen(monkeypatch):
    """The functions fail for a decoder that raises, takes or returns what it must not."""
    message = messages.seeds("rewarder")[0]
    decode = decoders.rewarder.decode

    def raises(*arguments, **options):
        raise IndexError

    def other(buffer, **options):
        message = decode(buffer, **options)
        return message.with_headers(sent_at=(message.sent_at or 0.0) + 1.0)

    for wrong, expected in ((raises, IndexError), (other, AssertionError)):
        monkeypatch.setattr(decoders.rewarder, "decode", wrong)
        raised(expected, decoders.feed_rewarder, message)
