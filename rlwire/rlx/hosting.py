"""Agents behind connections: a factory per process, a handler per connection."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from rlwire.environments.loading import load
from rlwire.errors import describe, quoted
from rlwire.rlx.metrics import LONGEST_NAME, METHODS, Metrics, MultiMetrics
from rlwire.transports.deferred import DeferredReply
from rlwire.transports.rate_limited_log import RateLimitedLog

logger = logging.getLogger(__name__)

# RELAAX's README, "Message exchange". The reason follows after a colon.
FAILURES = {
    "init": "can't initialize agent",
    "update": "can't update state",
    "reset": "can't reset agent",
    "update_metrics": "can't update metrics",
}


def resolve_agent(agent: Any) -> Callable[..., Any]:
    """Return the agent's class or callable; imports ``"module:name"``."""
    found: Callable[..., Any] = load(agent) if isinstance(agent, str) else agent
    if not callable(found):
        raise TypeError(
            f"agent must be a class, a callable or 'module:name', not {type(found).__name__}"
        )
    if inspect.isclass(found):
        _check_agent(found, found.__name__)
    _bound(found, None, None)
    return found


class AgentFactory:
    """Makes agents from a class, a callable or ``"module:name"``.

    Calls ``agent(parameter_server)``, or ``agent(parameter_server, metrics)`` if it has a
    parameter `metrics` or a second required one. The `x` of a measurement defaults to the
    parameter server's `n_step()`, if any, as in RELAAX.
    """

    def __init__(self, agent: Any, parameter_server: Any, metrics: Metrics) -> None:
        agent = resolve_agent(agent)
        if isinstance(parameter_server, str):
            parameter_server = load(parameter_server)()
        step = getattr(parameter_server, "n_step", None)
        self.metrics = MultiMetrics([metrics], step) if callable(step) else metrics
        self._agent = _bound(agent, parameter_server, self.metrics)
        self.log = RateLimitedLog(logger)

    def make(self) -> Any:
        agent = self._agent()
        _check_agent(agent, type(agent).__name__)
        return agent


def close_agent(agent: Any, peer: object, log: RateLimitedLog) -> None:
    """Call an agent's `close` or `disconnected`, if it has one; errors are logged."""
    for name in ("close", "disconnected"):
        hook = getattr(agent, name, None)
        if callable(hook):
            try:
                hook()
            except BaseException as error:
                log.exception("%s: agent's %s(): %s", peer, name, describe(error))
            return


class AgentHandler:
    """Answers the commands of one connection with an agent, made at the first command."""

    def __init__(self, factory: AgentFactory, peer: object) -> None:
        self._factory = factory
        self._peer = peer
        self._agent: Any = None
        self._text_logged = False

    def answer(self, message: dict[str, Any]) -> dict[str, Any] | DeferredReply:
        """Return the reply to one command; any exception of the agent becomes an error reply."""
        command = message["command"]
        try:
            if command == "update":
                # The hot path. The session rejects an update before init, so there is an agent.
                # RELAAX calls it by keyword.
                reward, terminal = message.get("reward"), message.get("terminal", False)
                if reward is not None and type(reward) is not float:
                    reward = self._parse("reward", reward)
                if terminal is not False and terminal is not True:
                    terminal = self._parse("terminal", terminal)
                state = message.get("state")
                action = self._agent.update(reward=reward, state=state, terminal=terminal)
                if type(action) is DeferredReply:
                    return action.then(self._acted, message)
                return {"response": "action", "data": action}
            if command == "update_metrics":
                return self._update_metrics(message["data"])
            if command == "init":
                return self._acknowledge(message, "ready", message.get("exploit", False))
            return self._acknowledge(message, "done")
        except BaseException as error:
            return self.failure(message, error)

    def _acted(
        self, message: dict[str, Any], action: Any, error: BaseException | None
    ) -> dict[str, Any]:
        if error is not None:
            return self.failure(message, error)
        return {"response": "action", "data": action}

    def failure(self, message: dict[str, Any], error: BaseException) -> dict[str, Any]:
        """Log an exception of the agent, or of encoding its action; return the error reply."""
        command, text = message["command"], describe(error)
        self._factory.log.error("%s: %s: %s", self._peer, FAILURES[command], text, exc_info=error)
        return _error(f"{FAILURES[command]}: {text}")

    def close(self) -> None:
        agent, self._agent = self._agent, None
        close_agent(agent, self._peer, self._factory.log)

    def _get_agent(self) -> Any:
        if self._agent is None:
            self._agent = self._factory.make()
        return self._agent

    def _acknowledge(self, message: dict[str, Any], response: str, *args: Any) -> dict[str, Any]:
        """Call the agent's method of this name; a false result is an error reply."""
        command, agent = message["command"], self._get_agent()
        method = getattr(agent, command, None)
        if method is None:  # three of RELAAX's agents have no reset
            reason = f"agent {type(agent).__name__} has no method {command}"
        elif result := method(*args):
            return {"response": response}
        else:
            reason = f"the agent's {command}() returned {quoted(result)}"
        text = f"{FAILURES[command]}: {reason}"
        self._factory.log.warning("%s: %s", self._peer, text)
        return _error(text)

    def _update_metrics(self, entries: list[dict[str, Any]]) -> dict[str, Any]:
        for entry in entries:  # check all before the first is reported
            if entry["method"] not in METHODS:
                raise ValueError(
                    f"a metric's method must be one of {METHODS}, not {quoted(entry['method'])}"
                )
            if len(entry["name"]) > LONGEST_NAME:
                raise ValueError(
                    f"a metric's name has at most {LONGEST_NAME} characters, "
                    f"not {len(entry['name'])}"
                )
        # As in RELAAX: the agent's own attribute, which it may set as late as in init().
        sink = getattr(self._get_agent(), "metrics", None)
        if not all(callable(getattr(sink, method, None)) for method in METHODS):
            sink = self._factory.metrics
        for entry in entries:
            getattr(sink, entry["method"])(name=entry["name"], y=entry["y"], x=entry["x"])
        return {"response": "done"}

    def _parse(self, name: str, value: Any) -> Any:
        """Convert a number or boolean sent as text, as RELAAX's client sends NumPy scalars."""
        plain: Any
        if isinstance(value, str):
            plain = _parse_text(value)
            if name == "terminal" and plain is not value:
                plain = bool(plain)
        elif type(value) is list and str in map(type, value):
            plain = [_parse_text(item) if type(item) is str else item for item in value]
        else:
            return value
        if not self._text_logged:
            self._text_logged = True
            self._factory.log.warning(
                "%s: %s is text, %s; the agent receives %s. Send float(reward) and bool(terminal). "
                "Not logged again for this connection.",
                *(self._peer, name, quoted(value), quoted(plain)),
            )
        return plain


def _parse_text(text: str) -> Any:
    if text in ("True", "False"):
        return text == "True"
    try:
        return float(text)
    except ValueError:
        return text


def _error(message: str) -> dict[str, Any]:
    return {"response": "error", "message": message}


def _check_agent(agent: Any, name: str) -> None:
    missing = [
        method for method in ("init", "update") if not callable(getattr(agent, method, None))
    ]
    if missing:
        raise TypeError(f"agent {name} has no method {', '.join(missing)}")


def _bound(agent: Callable[..., Any], parameter_server: Any, metrics: Any) -> Callable[[], Any]:
    """Bind the arguments that the agent's signature accepts."""
    try:
        signature = inspect.signature(agent)
    except ValueError:  # written in C, without a signature
        return partial(agent, parameter_server)
    ways: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((parameter_server,), {}),
        ((parameter_server, metrics), {}),
    ]
    if "metrics" in signature.parameters:
        ways.insert(0, ((parameter_server,), {"metrics": metrics}))
    for arguments, keywords in ways:
        with suppress(TypeError):
            signature.bind(*arguments, **keywords)
            return partial(agent, *arguments, **keywords)
    raise TypeError(
        f"agent {agent!r} must be callable with (parameter_server) or (parameter_server, metrics), "
        f"but has the signature {signature}"
    )
