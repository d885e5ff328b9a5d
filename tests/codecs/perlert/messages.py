"""PERLERT's messages as the oracle has them."""

from rlwire.codecs.perlert import AgentSlot, LobbyInformation


def as_tuple(value):
    if isinstance(value, AgentSlot):
        return tuple(getattr(value, name) for name in value.__match_args__)
    fields = [getattr(value, name) for name in value.__match_args__]
    if isinstance(value, LobbyInformation):
        fields[-1] = tuple(map(as_tuple, fields[-1]))
    return (type(value).__name__, *fields)
