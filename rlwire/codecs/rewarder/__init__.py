"""Universe's rewarder protocol: messages to JSON and back; needs msgspec, from the extra universe.

Source: openai/universe, "Universe internal communication protocols"; docs/protocols/rewarder.md
says where the program speaks otherwise. Not here: who may send what when.
"""

from rlwire.errors import optional

with optional("msgspec", "universe"):
    from rlwire.codecs.rewarder.messages import (
        AgentAction,
        ClientMessage,
        ConnectionClose,
        ControlPing,
        EnvDescribe,
        EnvObservation,
        EnvReset,
        EnvReward,
        EnvText,
        ReplyControlPing,
        ReplyEnvReset,
        ReplyError,
        RewarderMessage,
        ServerMessage,
        UnknownMessage,
        decode,
        encode,
    )

__all__ = [
    "AgentAction",
    "ClientMessage",
    "ConnectionClose",
    "ControlPing",
    "EnvDescribe",
    "EnvObservation",
    "EnvReset",
    "EnvReward",
    "EnvText",
    "ReplyControlPing",
    "ReplyEnvReset",
    "ReplyError",
    "RewarderMessage",
    "ServerMessage",
    "UnknownMessage",
    "decode",
    "encode",
]
