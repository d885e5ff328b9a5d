"""Runs a handler on an asyncio connection: replies are sent in order, now or deferred."""

from __future__ import annotations

import contextlib
import logging
from asyncio import get_running_loop
from collections.abc import Callable
from threading import get_ident
from typing import Any, Protocol

from rlwire.errors import ConnectionClosed, RlwireError
from rlwire.streams import NOTHING, StreamCore
from rlwire.transports.deferred import DeferredReply
from rlwire.transports.interface import Handler
from rlwire.transports.rate_limited_log import Log


class HandledConnection(Protocol):
    """What a `HandlerRunner` uses of an `AsyncConnection`."""

    peer: str
    log: Log
    fault: BaseException | None
    blocked: bool

    def set_reading(self, wanted: bool = True) -> None: ...
    def yield_to_loop(self) -> None: ...
    def write_aside(self) -> None: ...
    def reject(self, error: RlwireError) -> None: ...
    def close(self) -> None: ...
    def close_soon(self) -> None: ...
    def abort(self) -> None: ...


class HandlerRunner:
    """Passes one connection's events to its handler, and sends the replies."""

    def __init__(
        self,
        connection: HandledConnection,
        core: StreamCore,
        handler: Handler,
        on_fault: Callable[[RlwireError], object] | None,
    ) -> None:
        self._connection = connection
        self._core = core
        self._handler = handler
        self._on_fault = on_fault
        self.answer = handler.answer
        self._loop = get_running_loop()
        self._thread = get_ident()
        self._pending_reply: DeferredReply | None = None  # the pending deferred reply,
        self._pending_event: Any = NOTHING  # the event that it answers,
        self._next: Any = NOTHING  # and the event after that

    def ready(self) -> bool:
        """Return whether the next event can be answered at once."""
        return self._pending_reply is None and self._next is NOTHING

    @property
    def full(self) -> bool:
        """Whether to stop reading for now."""
        return self._next is not NOTHING

    @property
    def waiting(self) -> bool:
        """Whether the peer's timeouts apply: not between messages while a reply is pending."""
        return self._pending_reply is None or (self._core.inside and self._next is NOTHING)

    def continue_with(
        self, event: Any, reply: Any = NOTHING, error: Exception | None = None
    ) -> None:
        """Continue with an event, and with its reply or its error, if there is one."""
        if reply is not NOTHING or error is not None:
            self._send(event, reply, error)
        elif event is not NOTHING:
            self._next = event
        if not (
            self._pending_reply is not None
            and self._next is NOTHING
            and self._core.at_message_start
        ):
            self.answer_events()  # else nothing was received after a deferred reply

    def answer_events(self) -> None:
        """Answer received events, until a reply is deferred or cannot be sent now."""
        while not self._connection.blocked:
            if self._next is NOTHING:
                try:
                    self._next = self._core.next()
                except RlwireError as error:
                    if self.failed(error):
                        break
                    continue
                if self._next is NOTHING:
                    if self._core.more:
                        self._connection.yield_to_loop()
                    break
            if self._pending_reply is not None:
                # Only up to its next message: enough to detect that the peer closes.
                self._connection.set_reading(False)
                break
            event, self._next = self._next, NOTHING
            try:
                reply = self.answer(event)
            except Exception as error:
                self._send(event, NOTHING, error)
            else:
                self._send(event, reply, None)
            event = reply = None  # lets the arena reuse their block
        self._write()

    def _write(self) -> None:
        if self._core.sending and not self._connection.blocked:
            self._connection.write_aside()

    def _send(self, event: Any, reply: Any, error: BaseException | None) -> None:
        """Send the reply to an event, now or once it is set."""
        if error is None and isinstance(reply, DeferredReply):
            self._pending_reply, self._pending_event = reply, event
            reply.add_done_callback(self._on_done)
        else:
            self._put(event, reply, error)

    def _put(self, event: Any, reply: Any, error: BaseException | None) -> None:
        core, connection = self._core, self._connection
        try:
            try:
                if error is not None:
                    raise error
                if reply is not NOTHING:
                    core.put(reply)
            except Exception as failed:  # EncodeError, or an error in the value's own code
                if reply is NOTHING:
                    raise
                core.put(self._handler.failure(event, failed))
        except ConnectionClosed:
            return  # `end` reports it
        except RlwireError as failed:
            connection.log.warning("%s: rejected a message: %s", connection.peer, failed)
            connection.reject(failed)
        except Exception as failed:
            connection.fault = failed
            connection.log.exception("%s: connection closed, the handler failed", connection.peer)
            connection.close()
        finally:
            error = None  # its traceback refers to this frame
        if not core.may_wait():
            self._write()

    def failed(self, error: RlwireError) -> bool:
        """Report that no event could be received; return whether the connection has ended."""
        if isinstance(error, ConnectionClosed):
            if self._on_fault is not None:
                self._on_fault(error)
            # A peer that has closed its side may still wait for the reply.
            if self._pending_reply is None:
                self._connection.close_soon()
            return True
        self.report(error, "%s: rejected a message: %s", self._connection.peer, error)
        self._connection.reject(error)
        return False

    def report(self, error: RlwireError, text: str, *words: object) -> None:
        """Report an error that ends the connection to `on_fault`, or log it."""
        if self._on_fault is not None:
            self._on_fault(error)
        else:
            self._connection.log.warning(text, *words)

    def end(self) -> None:
        if self._pending_reply is not None:
            self._pending_reply.cancel()
        connection, core = self._connection, self._core
        lost = core.broken and not core.silent and self._on_fault is None
        if self._on_fault is not None:
            self._on_fault(core.end())
        connection.log.log(
            logging.WARNING if lost else logging.DEBUG,
            "%s: connection %s", connection.peer, core.ended,
        )  # fmt: skip
        try:
            self._handler.close()
        except Exception:
            connection.log.exception("%s: the handler failed to close", connection.peer)

    def _on_done(self, answer: DeferredReply) -> None:
        """Send a deferred reply that is done; called in any thread."""
        if get_ident() == self._thread:
            self._on_reply(answer)
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._on_reply, answer)

    def _on_reply(self, answer: DeferredReply) -> None:
        event, self._pending_reply, self._pending_event = self._pending_event, None, NOTHING
        if self._core.closed:
            return
        alone = self._next is NOTHING and self._core.at_message_start
        try:
            reply = answer.result()
        except Exception as error:
            self._put(event, NOTHING, error)
        else:
            self._put(event, reply, None)
        if alone:
            return
        try:
            self.answer_events()
            self._connection.set_reading()
        except Exception as failed:  # a bug in the session
            connection = self._connection
            connection.fault = failed
            connection.log.exception("%s: connection closed, the session failed", connection.peer)
            connection.abort()
