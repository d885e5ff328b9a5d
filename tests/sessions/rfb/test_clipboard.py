"""Who says what of clipboards: two ends that speak to each other, and ends that know less."""

from __future__ import annotations

from typing import Any

import pytest

from rlwire.codecs.rfb.clipboard import (
    ACTIONS,
    CAPS,
    NOTIFY,
    PEEK,
    PROVIDE,
    REQUEST,
    TEXT,
    ClientClipboard,
    ServerClipboard,
)
from rlwire.codecs.rfb.messages import (
    ClientCutText,
    ServerCutText,
    decode_client_message,
    decode_server_message,
)
from rlwire.errors import EncodeError
from rlwire.sessions.rfb.clipboard import SharedClipboard


def ends(most: int = 1000) -> tuple[SharedClipboard, SharedClipboard]:
    return (
        SharedClipboard(ServerClipboard, ServerCutText, most),
        SharedClipboard(ClientClipboard, ClientCutText, most),
    )


def talk(server: SharedClipboard, client: SharedClipboard) -> list[Any]:
    """Carry over what is said until nobody says more; return the texts that came."""
    texts: list[Any] = []
    while said := server.outgoing():
        texts += [client.take(decode_server_message(one)) for one in said]  # type: ignore[arg-type]
        said = client.outgoing()
        texts += [server.take(decode_client_message(one)) for one in said]  # type: ignore[arg-type]
    return [text for text in texts if text is not None]


def said_by(server: SharedClipboard) -> list[Any]:
    return [decode_server_message(one) for one in server.outgoing()]


def test_both_ends_tell_what_they_have() -> None:
    server, client = ends()
    server.introduce()
    assert talk(server, client) == []
    assert server.extended
    assert client.extended
    server.tell("日本")
    assert talk(server, client) == ["日本"]
    client.tell("à vous\n")
    texts = [server.take(decode_client_message(one)) for one in client.outgoing()]  # type: ignore[arg-type]
    assert texts == ["à vous\n"]


def test_a_text_that_is_long_is_asked_for_before_it_is_sent() -> None:
    server, client = ends(10)
    server.introduce()
    talk(server, client)
    server.tell("longer than ten bytes")
    assert said_by(server) == [ServerClipboard(NOTIFY | TEXT)]
    server.take(ClientClipboard(REQUEST | TEXT))
    assert said_by(server)[0].text == "longer than ten bytes"


def test_of_several_texts_the_newest_is_sent_and_a_flood_has_one_answer() -> None:
    server, _ = ends()
    server.introduce()
    server.take(ClientClipboard(ACTIONS | TEXT, (0,)))
    server.outgoing()
    for text in ("one", "two"):
        server.tell(text)
    for _ in range(1000):
        for action in (REQUEST, PEEK, NOTIFY, CAPS | REQUEST | NOTIFY | PROVIDE):
            server.take(ClientClipboard(action | TEXT, (0,)))
    assert said_by(server) == [
        ServerClipboard(REQUEST | TEXT),
        ServerClipboard(NOTIFY | TEXT),
        ServerClipboard(PROVIDE | TEXT, text="two"),
    ]
    assert server.outgoing() == []


def test_what_the_other_does_not_know_is_not_said() -> None:
    server, _ = ends()
    server.tell("café")  # it knows nothing of it
    assert said_by(server) == [ServerCutText("café")]
    with pytest.raises(EncodeError, match="Latin-1"):
        server.tell("日本")
    server.introduce()
    server.outgoing()
    server.take(ClientClipboard(CAPS | TEXT | NOTIFY, (1000,)))
    server.tell("日本")
    server.take(ClientClipboard(NOTIFY | TEXT))
    assert said_by(server) == [ServerClipboard(NOTIFY | TEXT)]
    server.take(ClientClipboard(CAPS | 4, (1000,)))  # pages only
    server.tell("text")
    assert said_by(server) == [ServerCutText("text")]


def test_nothing_is_there_to_be_told() -> None:
    server, _ = ends()
    server.introduce()
    server.outgoing()
    server.take(ClientClipboard(REQUEST | TEXT))
    server.take(ClientClipboard(NOTIFY | 4))
    server.take(ClientClipboard(PROVIDE | 4))
    assert server.outgoing() == []
    server.take(ClientClipboard(PEEK))
    assert said_by(server) == [ServerClipboard(NOTIFY)]
