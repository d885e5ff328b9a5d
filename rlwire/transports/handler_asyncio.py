"""A handler's side of an asyncio connection: each event is answered, in order, now or later."""

from __future__ import annotations

import contextlib
import logging
from asyncio import get_running_loop
from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING, Any

from rlwire.errors import ConnectionClosed, RlwireError
from rlwire.streams import NOTHING, StreamCore
from rlwire.transports.deferred import DeferredReply
from rlwire.transports.interface import Handler

if TYPE_CHECKING:
    from rlwire.transports.driver_asyncio import LoopDriver


class HandlerRunner:
    """Has a handler answer the events of one connection.

    Attributes:
        answer: the handler's.
    """

    def __init__(
        self,
        connection: LoopDriver,
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
        self._making: DeferredReply | None = None  # an answer that is being made,
        self._asked: Any = NOTHING  # what it answers,
        self._next: Any = NOTHING  # and what has come meanwhile

    def ready(self) -> bool:
        """Whether the next event can be answered when it comes."""
        return self._making is None and self._next is NOTHING

    @property
    def full(self) -> bool:
        """Whether nothing more is to come for now."""
        return self._next is not NOTHING

    @property
    def waiting(self) -> bool:
        """Whether the peer is waited for; while an answer is being made, only inside a message."""
        return self._making is None or (self._core.inside and self._next is NOTHING)

    def take_over(self, event: Any, reply: Any = NOTHING, error: Exception | None = None) -> None:
        """Go on where an event has come, and maybe its answer, or an error of making that."""
        if reply is not NOTHING or error is not None:
            self._send(event, reply, error)
        elif event is not NOTHING:
            self._next = event
        if not (self._making is not None and self._next is NOTHING and self._core.fresh):
            self.go_on()  # else nothing has come behind what is being made

    def go_on(self) -> None:
        """Answer what has come; stop while an answer cannot be made or sent."""
        while not self._connection.blocked:
            if self._next is NOTHING:
                try:
                    self._next = self._core.next()
                except RlwireError as error:
                    if self.failed(error):
                        return
                    continue
                if self._next is NOTHING:
                    if self._core.more:
                        self._connection.rest()
                    return
            if self._making is not None:
                # Listened to up to its next message, so that it is heard if it leaves.
                self._connection.listen(False)
                return
            event, self._next = self._next, NOTHING
            try:
                reply = self.answer(event)
            except Exception as error:
                self._send(event, NOTHING, error)
            else:
                self._send(event, reply, None)
            event = reply = None  # the arena may have the block back

    def _send(self, event: Any, reply: Any, error: BaseException | None) -> None:
        """Send the answer to an event, once it is there, or what stands for it."""
        if error is None and isinstance(reply, DeferredReply):
            self._making, self._asked = reply, event
            reply.add_done_callback(self._done)
        else:
            self._put(event, reply, error)

    def _put(self, event: Any, reply: Any, error: BaseException | None) -> None:
        """Send the answer to an event, or what is said when there is none."""
        core, connection = self._core, self._connection
        try:
            try:
                if error is not None:
                    raise error
                if reply is not NOTHING:
                    core.put(reply)
            except Exception as failed:  # EncodeError; or the value's own code raised
                if reply is NOTHING:
                    raise
                core.put(self._handler.failure(event, failed))
        except ConnectionClosed:
            return  # `end` reports it
        except RlwireError as failed:
            connection.log.warning("%s: it sent what is not allowed: %s", connection.peer, failed)
            connection.refuse(failed)
        except Exception as failed:
            connection.fault = failed
            connection.log.exception("%s: closed, its handler failed", connection.peer)
            connection.close()
        finally:
            error = None  # whose traceback has this frame
        if core.sending and not connection.blocked:
            connection.write_aside()

    def failed(self, error: RlwireError) -> bool:
        """Tell who is concerned that no event could be had; returns whether none can be."""
        if isinstance(error, ConnectionClosed):
            if self._on_fault is not None:
                self._on_fault(error)
            # Who sends no more may wait for the answer that is being made.
            if self._making is None:
                self._connection.close_soon()
            return True
        self.report(error, "%s: it sent what is not allowed: %s", self._connection.peer, error)
        self._connection.refuse(error)
        return False

    def report(self, error: RlwireError, text: str, *words: object) -> None:
        """Tell of what ends the connection: who asked for that, or the log."""
        if self._on_fault is not None:
            self._on_fault(error)
        else:
            self._connection.log.warning(text, *words)

    def end(self) -> None:
        """Take note that the connection is gone."""
        if self._making is not None:
            self._making.cancel()  # nobody waits for it any more
        connection, core = self._connection, self._core
        lost = core.broken and not core.silent and self._on_fault is None
        if self._on_fault is not None:
            self._on_fault(core.end())
        connection.log.log(
            logging.WARNING if lost else logging.DEBUG,
            "the connection to %s is %s", connection.peer, core.ended,
        )  # fmt: skip
        try:
            self._handler.close()
        except Exception:
            connection.log.exception("%s: its handler failed to close", connection.peer)

    def _done(self, answer: DeferredReply) -> None:
        """Have the answer that has come sent; called in any thread."""
        if get_ident() == self._thread:
            self._made(answer)
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits
                self._loop.call_soon_threadsafe(self._made, answer)

    def _made(self, answer: DeferredReply) -> None:
        event, self._making, self._asked = self._asked, None, NOTHING
        if self._core.closed:
            return
        alone = self._next is NOTHING and self._core.fresh
        try:
            reply = answer.result()
        except Exception as error:
            self._put(event, NOTHING, error)
        else:
            self._put(event, reply, None)
        if alone:
            return
        try:
            self.go_on()
            self._connection.listen()
        except Exception as failed:  # a defect of the session's; whoever gave this has others
            self._connection.fault = failed
            self._connection.log.exception("%s: closed, its session failed", self._connection.peer)
            self._connection.abort()
