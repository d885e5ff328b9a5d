"""Every number of a PERLERT server, with the reason for its default."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DEFAULT_SETTINGS", "ServerSettings"]


@dataclass(frozen=True)
class ServerSettings:
    """Times in seconds, sizes in bytes.

    Attributes:
        auto_start: start as soon as all registered clients are ready and there are enough of
            them. Off: the server starts by `Instance.start` only.
        start_message: sent to the clients before ``start``, as in the draft's Figure 1. None for
            no message.
        start_resend: how long after the start a client that speaks to the lobby port is sent
            ``start`` again. 5, the draft's section 6.
        done_resend: how long after its ``done`` a client that speaks to the rollout port is sent
            that step again. 10, the draft's section 6.
        resends_per_second: ``start`` and ``done`` sent again to one client. 30, the rate of the
            stream that the client has just been sent, so no flood gains anything by them.
        gather: a change of the lobby is told to all at once, those that follow within this time
            together at its end. 0.05: not felt by a person, and at most 20 datagrams a second
            to a client however many others come and go.
        idle: a client in the lobby that says nothing for so long loses its slot. 300: a client
            that repeats its requests is heard every few seconds, a person may think for minutes,
            and a slot taken from a false address does not stay blocked for ever. It is
            checked every tenth of it.
        requests_burst: lobby requests that one client may make at once. 20: more than
            registering, moving and getting ready with each request repeated several times.
        requests_per_second: and those that follow. 5: a client that repeats a lost request
            every quarter of a second stays below it. More are dropped; each could cause a
            datagram to all clients of the instance.
        frames_per_second: rollout steps to one client. 30, RECOMMENDED by the draft. A frame may
            come one interval early, so that a late tick does not cost the one after it.
        unheard: how long a client that has not spoken to the rollout port gets the full rate. 2:
            a client's first action is there within a round trip, and may be lost a few times.
        unheard_rate: frames a second after that, until it speaks. 1: whoever registers with
            another's address sends that one next to nothing, and a client that only looks on
            still sees the run. Its ``done`` is always sent.
        stranger_rate: bytes a second that peers without a slot are answered, for each host.
            4 KiB: a few clients behind one address may ask each second, and a host whose
            address is forged gets no more than a telephone line would carry.
        stranger_burst: the same at once. 64 KiB: fifty answers of the largest default size; a
            thousand clients of one host that register at the same time.
        strangers_rate: lobby information, bytes a second, for all hosts together. 128 KiB:
            a hundred answers of the largest default size, or a thousand common ones; and one
            megabit is all that an attacker with many forged addresses makes the server send.
        strangers_burst: the same at once. 256 KiB.
        hosts: hosts whose bytes are counted. 4,096, about a megabyte of memory; beyond it the one
            not heard for the longest time is forgotten, and `strangers_rate` still holds.
        log_interval: one line of the log for each reason for which datagrams are dropped. 60.
    """

    auto_start: bool = True
    start_message: str | None = "Simulation will start..."
    start_resend: float = 5.0
    done_resend: float = 10.0
    resends_per_second: float = 30.0
    gather: float = 0.05
    idle: float = 300.0
    requests_burst: float = 20.0
    requests_per_second: float = 5.0
    frames_per_second: float = 30.0
    unheard: float = 2.0
    unheard_rate: float = 1.0
    stranger_rate: float = 4 * 1024
    stranger_burst: float = 64 * 1024
    strangers_rate: float = 128 * 1024
    strangers_burst: float = 256 * 1024
    hosts: int = 4096
    log_interval: float = 60.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name in ("auto_start", "start_message"):
                continue
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(f"{name} must be a number, not {value!r}")
            if name in ("gather", "start_resend", "done_resend", "unheard"):
                if not value >= 0:
                    raise ValueError(f"{name} must be 0 or more, not {value!r}")
            elif not value > 0:
                raise ValueError(f"{name} must be over 0, not {value!r}")


DEFAULT_SETTINGS = ServerSettings()
"""The settings in force where none are given."""
