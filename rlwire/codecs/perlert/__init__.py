"""PERLERT: datagrams to messages and back, and their free fields to numbers, arrays, mappings.

Source: R. Montero, ``draft-perlert-wg-00`` (2020); docs/protocols/perlert.md says how it is read
where it leaves a choice. The work is done in compiled modules: `values` has the messages,
`decoder` and `encoder` what turns them into bytes and back, `text` what
turns text into values. Not here: who may send what when.
"""

from rlwire.codecs.perlert.decoder import (
    StepReader,
    decode_client_message,
    decode_server_message,
    peek_header,
)
from rlwire.codecs.perlert.encoder import (
    StepWriter,
    encode,
    encode_into,
)
from rlwire.codecs.perlert.text import (
    array_to_text,
    mapping_to_text,
    text_to_array,
    text_to_mapping,
    text_to_value,
    value_to_text,
)
from rlwire.codecs.perlert.values import (
    Action,
    AgentSlot,
    LobbyInformation,
    LobbyMessage,
    LobbyRequest,
    Message,
    Ready,
    Register,
    Registered,
    RolloutStep,
    Start,
)

__all__ = [
    "Action",
    "AgentSlot",
    "LobbyInformation",
    "LobbyMessage",
    "LobbyRequest",
    "Message",
    "Ready",
    "Register",
    "Registered",
    "RolloutStep",
    "Start",
    "StepReader",
    "StepWriter",
    "array_to_text",
    "decode_client_message",
    "decode_server_message",
    "encode",
    "encode_into",
    "mapping_to_text",
    "peek_header",
    "text_to_array",
    "text_to_mapping",
    "text_to_value",
    "value_to_text",
]
