"""Universe's rewarder protocol: messages to JSON and back.

Source: openai/universe, "Universe internal communication protocols"; docs/protocols/rewarder.md
says where the program speaks otherwise. The work is done in compiled modules: `rewarder_values` has
the messages, `rewarder_decoder` and `rewarder_encoder` what turns them into bytes and back. Not
here: who may send what when.
"""

from rlwire.codecs.rewarder_decoder import decode
from rlwire.codecs.rewarder_encoder import encode, encode_into
from rlwire.codecs.rewarder_values import (
    AgentAction,
    ClientMessage,
    ConnectionClose,
    ControlPing,
    EnvDescribe,
    EnvObservation,
    EnvReset,
    EnvReward,
    EnvText,
    Message,
    ReplyControlPing,
    ReplyEnvReset,
    ReplyError,
    ServerMessage,
    UnknownMessage,
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
    "Message",
    "ReplyControlPing",
    "ReplyEnvReset",
    "ReplyError",
    "ServerMessage",
    "UnknownMessage",
    "decode",
    "encode",
    "encode_into",
]
