"""Universe's rewarder protocol: messages to JSON and back. Needs the extra ``universe``.

Source: openai/universe, "Universe internal communication protocols". Where rlwire follows its
program instead, docs/protocols/rewarder.md says so.
"""

from rlwire.errors import optional

with optional("msgspec", "universe"):
    from rlwire.codecs.rewarder.messages import (
        AgentAction,
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
        UnknownMessage,
        decode,
        encode,
    )

__all__ = [
    "AgentAction",
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
    "UnknownMessage",
    "decode",
    "encode",
]
