"""What a search has found worth keeping is replayed, decoder by decoder."""

import random
import sys
from pathlib import Path

import pytest

from tests.mutating import mutated
from tests.raising import raised

HERE = Path(__file__).parent
MUTATIONS = 3_000
SLOW = {"streams": 200, "http2": 300, "checkpoints": 300, "rllink": 1000, "perlert_cipher": 1000}
sys.path.insert(0, str(HERE))
try:
    import decoders
    import messages
finally:
    sys.path.remove(str(HERE))

pytest.importorskip("cryptography")


@pytest.mark.parametrize("name", decoders.DECODERS)
def test_decoder_reads_or_rejects_each_corpus_input(name):
    for data in [*messages.corpus()[name], *messages.seeds(name)]:
        print(data.hex())  # pytest shows it for the one that fails
        decoders.DECODERS[name](data)


@pytest.mark.parametrize("name", decoders.DECODERS)
def test_decoder_reads_or_rejects_truncated_and_mutated_messages(name):
    feed, seeds, chance = decoders.DECODERS[name], messages.seeds(name), random.Random(4711)
    for seed in seeds if name not in SLOW else ():
        for size in range(1, min(len(seed), 300)):
            feed(seed[:size])
    for turn in range(SLOW.get(name, MUTATIONS)):
        data = mutated(chance, seeds[turn % len(seeds)][1:])
        feed(seeds[turn % len(seeds)][:1] + data)


def test_corpus_is_small_and_has_inputs_for_each_decoder():
    assert messages.CORPUS.stat().st_size < 500_000
    assert {name for name, kept in messages.corpus().items() if kept} == set(decoders.DECODERS)


def test_feed_functions_detect_a_faulty_decoder(monkeypatch):
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
