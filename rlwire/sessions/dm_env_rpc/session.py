"""dm_env_rpc's two sessions: an agent's client sends requests, a server replies in order.

Both use `TRANSITIONS` (`rlwire.sessions.dm_env_rpc.states`); a client also accepts `TOLERATED`,
because other servers begin sequences in other states than RUNNING. Worlds are identified by the
names in the requests. If a world has several names, a client may not notice a reset of its joined
world before the next step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NoReturn, TypeAlias

from rlwire.buffers import Block
from rlwire.codecs import dm_env_rpc as codec
from rlwire.codecs.dm_env_rpc import (
    Step,
    StepResult,
    decode_step_request,
    decode_step_response,
    encode_step_request,
    encode_step_response_parts,
)
from rlwire.codecs.grpc import Code
from rlwire.errors import (
    DeadlineExceeded,
    DecodeError,
    EncodeError,
    LimitExceeded,
    LocalProtocolError,
    RemoteProtocolError,
    RlwireError,
    for_peer,
    quoted,
    shown,
)
from rlwire.limits import DEFAULT, Limits
from rlwire.sessions.dm_env_rpc.states import (
    REQUESTS,
    TOLERATED,
    TRANSITIONS,
    DmEnvRpcState,
    DmEnvRpcStateNode,
    nodes,
)
from rlwire.sessions.layer import Buffer, Layer, LayerPhase

Buffers: TypeAlias = list[bytes | memoryview]

_TEXT = 2000  # characters of an error text that a peer receives
# Bytes to which tensors without a spec may expand: _ROOM + _TIMES * size of the message.
_ROOM = 1 << 20
_TIMES = 16
_SELECTIONS = 64  # tuples of requested observations that a client remembers
_HINTS = {
    "join_world": ": leave_world first",
    "step": ": join_world first",
    "reset": ": join_world first",
}
_KINDS: dict[type, str] = {request: name for name, (request, _) in REQUESTS.items()}
_ANSWERS: dict[type, str] = {response: name for name, (_, response) in REQUESTS.items()}

_new: Any = object.__new__

_SERVER = nodes(TRANSITIONS)
_CLIENT = nodes(TRANSITIONS | TOLERATED)

# A pending request: its name, and the world that it names.
_Asked: TypeAlias = tuple[str, str]
_STEP: _Asked = ("step", "")  # by name; compared by identity


class _DmEnvRpcSession(Layer):
    """Base of both sides. Without a joined world, there are no specs and no name."""

    _node: DmEnvRpcStateNode

    def __init__(
        self, *, limits: Limits | None = None, copy: bool | None = True, check_bounds: bool = True
    ) -> None:
        self._limits = DEFAULT if limits is None else limits
        self._received = self._limits.received
        self._copy = copy
        self._check_bounds = check_bounds
        self.actions: codec.SpecManager | None = None
        self.observations: codec.SpecManager | None = None
        self.world_name: str | None = None

    @property
    def state(self) -> DmEnvRpcState:
        """The connection's state; for a client, after the last response."""
        return self._node.state

    @property
    def specs(self) -> codec.ActionObservationSpecs | None:
        """The joined agent's specs, None if no world is joined."""
        if self.actions is None or self.observations is None:
            return None
        return codec.ActionObservationSpecs(
            dict(self.actions.specs_by_uid), dict(self.observations.specs_by_uid)
        )

    def _managers(
        self, specs: codec.ActionObservationSpecs
    ) -> tuple[codec.SpecManager, codec.SpecManager]:
        """Return managers of these specs, the current ones if they are equal."""
        actions, observations = self.actions, self.observations
        if actions is None or actions.specs_by_uid != specs.actions:
            actions = codec.SpecManager(specs.actions, limits=self._limits)
        if observations is None or observations.specs_by_uid != specs.observations:
            observations = codec.SpecManager(specs.observations, limits=self._limits)
        return actions, observations

    def _accept(self, response: Any, world: str, node: DmEnvRpcStateNode) -> None:
        """Change the state with a response; RlwireError if its specs cannot be used."""
        if isinstance(response, (codec.JoinWorldResponse, codec.ResetResponse)):
            self.actions, self.observations = self._managers(response.specs)
        if isinstance(response, codec.JoinWorldResponse):
            self.world_name = world
        elif isinstance(response, codec.LeaveWorldResponse):
            self.actions = self.observations = self.world_name = None
        self._node = node

    def _outcome(self, kind: str, world: str) -> str:
        elsewhere = kind in ("reset_world", "destroy_world") and world != self.world_name
        return "done elsewhere" if elsewhere else "done"

    def _check_size(self, message: Buffer) -> None:
        if len(message) > self._received:
            raise LimitExceeded("received", self._received, len(message))


class EncodedStep:
    """A step's message; made by `DmEnvRpcClientSession.encode`."""

    def __init__(self, buffer: bytes) -> None:
        self.buffer = buffer


class DmEnvRpcClientSession(_DmEnvRpcSession):
    """The agent's side: sends requests, receives responses.

    Requests may be sent before earlier ones are answered; the server then rejects those that are
    not allowed.
    """

    def __init__(self, **options: Any) -> None:
        _DmEnvRpcSession.__init__(self, **options)
        self._node = _CLIENT[DmEnvRpcState.NOT_JOINED]
        self._pending: deque[_Asked] = deque()
        self._selections: dict[tuple[str, ...], bytes] = {}

    @property
    def pending(self) -> int:
        return len(self._pending)

    def send(self, event: codec.Request | Step | EncodedStep) -> Buffers:
        """Return the buffers of one request.

        The response to a `Step` (by name) is a `StepResult`, to a `StepRequest` (by UID) a
        `StepResponse`. Names are those of the last response to a join or reset.
        """
        if type(event) is Step:
            buffer = self._encode(event)
        elif type(event) is not EncodedStep:
            return self._send_other(event)  # type: ignore[arg-type]
        elif not (self._pending or self._node.steps):
            self._not_now("step")
        else:
            buffer = event.buffer
        self._pending.append(_STEP)
        return [buffer]

    def encode(self, event: Step) -> EncodedStep:
        """Encode a step that `send` accepts until the next response to a join or reset."""
        return EncodedStep(self._encode(event))

    def _encode(self, event: Step) -> bytes:
        if not (self._pending or self._node.steps):
            self._not_now("step")
        try:
            requested = self._selections[event.requested_observations]
        except (KeyError, TypeError):
            requested = self._select(event.requested_observations)
        return encode_step_request(
            self.actions,  # type: ignore[arg-type]
            event.actions,
            requested,
            check_bounds=self._check_bounds and self._node.running,  # a first step's are ignored
        )

    def data_offset(self, buffer: Buffer, start: int, end: int) -> int:
        return codec.data_offset(buffer, start, end)

    def receive(self, message: Buffer) -> list[codec.Response | StepResult]:
        """Return the response in a message, which may be an error `Status`."""
        pending, observations = self._pending, self.observations
        if not pending or pending[0] is not _STEP or observations is None:
            return self._receive_other(message)
        try:
            if len(message) > self._received:
                self._check_size(message)
            decoded = decode_step_response(
                observations, message, copy=self._copy, unshared=_is_unshared(message)
            )
        except RlwireError:
            self._close()
            raise
        if decoded is None:
            return self._receive_other(message)
        state, seen = decoded
        try:
            node = self._node.steps[state]
        except KeyError:
            self._no_state(state)
        self._node = node
        pending.popleft()
        # Without a Python call of `__init__`, on the path of every step.
        result = _new(StepResult)
        result.state, result.observations, result.unasked = state, seen, ()
        return [result]

    def reject(self, error: RlwireError) -> Buffers:
        """Close the session; a client cannot send an error."""
        self._close()
        return []

    def _send_other(self, event: codec.Request) -> Buffers:
        kind = _KINDS.get(type(event))
        if kind is None:
            raise LocalProtocolError(
                f"expected a request, got {type(event).__name__}; requests are "
                f"{', '.join(request.__name__ for request in _KINDS)} and Step"
            )
        if not (self._pending or kind in self._node.allowed):
            self._not_now(kind)
        buffer = codec.encode_request(event, limits=self._limits)
        self._pending.append((kind, getattr(event, "world_name", "")))
        return [buffer]

    def _receive_other(self, message: Buffer) -> list[codec.Response | StepResult]:
        if self.closed:
            raise LocalProtocolError("the session is closed")
        try:
            self._check_size(message)
            response = codec.decode_response(message, copy=self._copy, limits=self._limits)
        except RlwireError:
            self._close()
            raise
        if response is None:
            self._fail("the server sent a response without a payload")
        if not self._pending:
            self._fail(f"the server sent a {type(response).__name__} without a request")
        kind, world = self._pending[0]
        answered = _ANSWERS.get(type(response), "error")
        if answered not in (kind, "error"):
            self._fail(f"the server answered {kind} with a {type(response).__name__}")
        if isinstance(response, codec.StepResponse):
            node = self._node.steps.get(response.state)
            if node is None:
                self._no_state(response.state)
        else:
            outcome = "error" if answered == "error" else self._outcome(kind, world)
            node = self._node.nexts.get((kind, outcome))
            if node is None:
                self._fail(f"the server accepted {kind} in the state {self.state.name}")
        try:
            self._accept(response, world, node)
        except RlwireError as error:
            self._fail(f"the server's specs cannot be used: {error}")
        self._selections.clear()  # the specs may be others
        self._pending.popleft()
        return [response]

    def _select(self, names: Iterable[str]) -> bytes:
        """Return the encoded field that requests these observations, and cache it."""
        if self.observations is None:
            raise LocalProtocolError(
                "cannot step by name before the response to join_world; use a StepRequest with UIDs"
            )
        if isinstance(names, str):
            raise EncodeError(f"requested_observations must be a tuple of names, not {names!r}")
        names = tuple(names)
        selection = self.observations.request(names)
        if len(self._selections) >= _SELECTIONS:
            self._selections.clear()
        self._selections[names] = selection
        return selection

    def _close(self) -> None:
        self._node, self.phase = _CLIENT[DmEnvRpcState.CLOSED], LayerPhase.CLOSED
        self._pending.clear()

    def _not_now(self, kind: str) -> NoReturn:
        if self.closed:
            raise LocalProtocolError("the session is closed")
        can = ", ".join(self._node.allowed)
        hint = _HINTS.get(kind, "")
        raise LocalProtocolError(f"{kind} cannot be sent now{hint}; allowed are {can}")

    def _no_state(self, state: int) -> NoReturn:
        if self._node.joined:
            self._fail(f"the server sent a step with the unexpected state {state!r}")
        self._fail("the server accepted a step, but no world is joined")

    def _fail(self, text: str) -> NoReturn:
        self._close()
        raise RemoteProtocolError(text) from None


class DmEnvRpcServerSession(_DmEnvRpcSession):
    """The environment's side: receives requests, sends responses, one at a time.

    Each request must be answered before the next `receive`, because decoding a step depends on the
    responses before it. A request that `receive` rejects changes nothing; answer it with `reject`,
    or with your own `Status`.
    """

    def __init__(self, **options: Any) -> None:
        _DmEnvRpcSession.__init__(self, **options)
        self._node = _SERVER[DmEnvRpcState.NOT_JOINED]
        self._asked: _Asked | None = None
        self._refusal: Code | None = None
        # The last requested observations: as received, without duplicates, by name.
        self._wanted: list[int] | None = None
        self._requested: list[int] = []
        self._names: tuple[str, ...] = ()

    @property
    def pending(self) -> int:
        return int(self._asked is not None or self._refusal is not None)

    def receive(self, message: Buffer) -> list[codec.Request | Step]:
        """Return the request in one message; a step is always a `Step`, by name.

        The actions of a step that begins a sequence are ignored.
        """
        node = self._node
        if not node.joined or self._asked is not None or self._refusal is not None:
            return self._receive_other(message)
        try:
            if len(message) > self._received:
                self._check_size(message)
            decoded = decode_step_request(
                self.actions,  # type: ignore[arg-type]
                message,
                ignore_actions=not node.running,
                check_bounds=self._check_bounds,
                copy=self._copy,
                unshared=_is_unshared(message),
            )
        except RlwireError as error:
            self._refusal = _code_of(error)
            raise
        if decoded is None:
            return self._receive_other(message)
        actions, wanted = decoded
        if wanted != self._wanted:
            self._select(wanted)
        self._asked = _STEP
        return [Step(actions, self._names)]

    def send(self, event: codec.Response | StepResult) -> Buffers:
        """Return the buffers of the response to the pending request.

        A `StepResult` is sent with the requested observations and those in its `unasked`.
        """
        if type(event) is not StepResult or self._asked is not _STEP:
            return self._send_other(event)
        requested = self._requested
        if event.unasked:
            requested = [*requested, *event.unasked]
        try:
            node = self._node.steps[event.state]
        except KeyError:
            self._no_state(event.state)
        buffers = encode_step_response_parts(
            self.observations,  # type: ignore[arg-type]
            event.state,
            event.observations,
            requested,
        )
        self._node = node
        self._asked = None
        return buffers

    def reject(self, error: RlwireError) -> Buffers:
        """Return the error `Status` for a request that `receive` rejected; the session stays open.

        Any other error closes the session, and is sent only if a request is pending.
        """
        code = self._refusal
        waits = code is not None or self._asked is not None
        if code is None:
            self._node, self.phase = _SERVER[DmEnvRpcState.CLOSED], LayerPhase.CLOSED
            late = isinstance(error, DeadlineExceeded)
            code = Code.DEADLINE_EXCEEDED if late else Code.UNAVAILABLE
        self._asked = self._refusal = None
        text = shown(for_peer(error, "the server"), _TEXT)
        return [codec.encode_response(codec.Status(code, text))] if waits else []

    def _receive_other(self, message: Buffer) -> list[codec.Request | Step]:
        if self.closed:
            raise LocalProtocolError("the session is closed")
        if self.pending:
            raise LocalProtocolError("cannot receive: the last request is not answered yet")
        try:
            self._check_size(message)
            kind = codec.request_kind(message, limits=self._limits)
            # Check before decoding: a step may have no specs yet, and few bytes may expand to many.
            request = None
            if kind in self._node.allowed:
                request = codec.decode_request(
                    message, copy=self._copy, limits=without_spec(self._limits, len(message))
                )
        except RlwireError as error:
            self._refusal = _code_of(error)
            raise
        if kind is None:
            self._reject(
                Code.INVALID_ARGUMENT,
                f"the request has no payload, expected one of {', '.join(REQUESTS)}",
            )
        if request is None:
            hint = _HINTS.get(kind, "")
            self._reject(
                Code.FAILED_PRECONDITION,
                f"{kind} is not allowed now{hint}; allowed are {', '.join(self._node.allowed)}",
            )
        world = getattr(request, "world_name", "")
        if kind == "destroy_world" and world == self.world_name:
            self._reject(
                Code.FAILED_PRECONDITION,
                f"destroy_world: this connection is joined to {quoted(world)}; leave_world first",
            )
        self._asked = (kind, world)
        return [request]

    def _send_other(self, event: codec.Response | StepResult) -> Buffers:
        if isinstance(event, codec.Status):
            if not self.pending:
                raise LocalProtocolError("a Status cannot be sent: no request is pending")
            # Without this session's limits, so that it can report that one is exceeded.
            buffer = codec.encode_response(event)
            self._asked = self._refusal = None
            return [buffer]
        kind = _ANSWERS.get(type(event))
        if self._asked is None or kind != self._asked[0] or kind == "step":
            awaited = "a Status" if self._refusal is not None else "a request first"
            if self._asked is _STEP:
                awaited = "StepResult or Status"
            elif self._asked is not None:
                awaited = f"{REQUESTS[self._asked[0]][1].__name__} or Status"
            raise LocalProtocolError(f"cannot send a {type(event).__name__}; expected {awaited}")
        world = self._asked[1]
        node = self._node.nexts[kind, self._outcome(kind, world)]
        buffer = codec.encode_response(event, limits=self._limits)  # type: ignore[arg-type]
        self._accept(event, world, node)
        self._asked = self._wanted = None  # the specs may be others
        return [buffer]

    def _select(self, wanted: list[int]) -> None:
        """Check and remember the requested observations."""
        try:
            names = self.observations.names_of(wanted)  # type: ignore[union-attr]
        except DecodeError as error:
            self._reject(Code.INVALID_ARGUMENT, f"requested_observations: {error.reason}")
        self._names = names
        self._requested = list(dict.fromkeys(wanted))
        # Not kept with duplicates, of which a peer could send many.
        self._wanted = wanted if len(wanted) == len(names) else None

    def _reject(self, code: Code, text: str) -> NoReturn:
        self._refusal = code
        raise RemoteProtocolError(text) from None

    def _no_state(self, state: Any) -> NoReturn:
        can = " or ".join(codec.EnvironmentStateType(number).name for number in self._node.steps)
        raise LocalProtocolError(
            f"a step cannot lead from {self.state.name} to {state!r}, only to {can}"
            + ("" if self._node.running else ": a sequence begins with RUNNING")
        ) from None


def without_spec(limits: Limits, size: int) -> Limits:
    """Return the limits for tensors without a spec, in a message of `size` bytes."""
    return replace(limits, expanded=min(limits.expanded, _ROOM + _TIMES * size))


def _is_unshared(message: Buffer) -> bool:
    """Return whether a received message is most of its block, whose memory it may keep."""
    if type(message) is not memoryview:
        return False
    block: Any = message.obj
    return type(block) is Block and 2 * len(message) >= len(block)


def _code_of(error: RlwireError) -> Code:
    limited = isinstance(error, LimitExceeded)
    return Code.RESOURCE_EXHAUSTED if limited else Code.INVALID_ARGUMENT
