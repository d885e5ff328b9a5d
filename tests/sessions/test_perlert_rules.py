from __future__ import annotations

import itertools

from rlwire.codecs.perlert import Action, LobbyRequest, Ready, Register
from rlwire.sessions.perlert_server import LOBBY_RULES, REASONS, ROLLOUT_RULES, Who


def test_the_tables_are_complete() -> None:
    everything = set(itertools.product(Who, (LobbyRequest, Register, Ready, Action)))
    assert set(LOBBY_RULES) == everything
    assert set(ROLLOUT_RULES) == everything
    steps = {
        step for rules in (LOBBY_RULES, ROLLOUT_RULES) for row in rules.values() for step in row
    }
    known = {"inform", "register", "ready", "start_again", "hear", "act", "done_again"}
    assert steps <= known | set(REASONS)


def test_only_the_registered_may_act_in_the_tables() -> None:
    acts = {"act", "hear", "ready"}
    for rules in (LOBBY_RULES, ROLLOUT_RULES):
        for (who, _message), steps in rules.items():
            if who in (Who.STRANGER, Who.FORMER):
                assert not acts & set(steps)
