"""``rlwire demo``: play a game in the browser, with the extra ``demo``."""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import re
import socket
import sys
import threading
import webbrowser
from typing import Any, Final

from rlwire.errors import RlwireError, optional
from rlwire.sessions.passwords import new_password
from rlwire.transports.address import Address

_ATARI: Final = {"frameskip": 1, "repeat_action_probability": 0.0}  # the console's 60 Hz
# Of environments without keys; and of Pong, whose action "right" is up.
_KEYS: Final[dict[str, dict[str, int]]] = {
    "Pong": {"Up": 2, "w": 2, "Down": 3, "s": 3},
    "CartPole": {"Left": 0, "Right": 1},
    "MountainCar": {"Left": 0, "Right": 2, "": 1},
    "LunarLander": {"Left": 1, "Up": 2, "Right": 3, "": 0},
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Serve a game, and open its page in the browser: keys, buttons, score."
    add = parser.add_argument
    names = "of Gymnasium, such as ALE/Breakout-v5 (default: ALE/Pong-v5)"
    add("env_id", nargs="?", default="ALE/Pong-v5", metavar="ENV_ID", help=names)
    rates = "steps a second (default: 60 for Atari, otherwise up to 30)"
    add("--rate", type=float, metavar="HZ", help=rates)
    hosts = "address to listen on; 0.0.0.0 finds this machine's own, for a phone in your network; "
    hosts += "prints a password (default: 127.0.0.1, without a password)"
    add("--host", default="127.0.0.1", metavar="ADDRESS", help=hosts)
    ports = "of the page; if it is taken, the system chooses one (default: 6080)"
    add("--port", type=int, default=6080, help=ports)
    add("--no-browser", action="store_true", help="print the URL, and open no browser")


def run(given: argparse.Namespace) -> None:
    """Serve until SIGINT or SIGTERM."""
    atari = given.env_id.startswith("ALE/")
    for package in ("gymnasium", "msgspec", *["ale-py"] * atari):
        with optional(package, "demo", package.replace("-", "_")):
            __import__(package.replace("-", "_"))
    from rlwire.environments.loading import load_environment
    from rlwire.universe.server import UniverseServer

    if atari:
        import ale_py

        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # it greets on stderr
    make: Any = load_environment(f"gym:{given.env_id}")
    name = re.sub(r"^.*/|-v\d+$", "", given.env_id)
    if given.host == "0.0.0.0":  # scripts may connect to the page's own address alone
        with socket.socket(type=socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))  # sends nothing
            given.host = probe.getsockname()[0]
    family = socket.AF_INET6 if ":" in given.host else socket.AF_INET
    try:
        socket.create_server((given.host, given.port), family=family).close()
    except OSError:
        given.port = 0
    address = Address(given.host, given.port)
    password = None if address.loopback else new_password()
    server = UniverseServer(
        functools.partial(make, render_mode="rgb_array", **(_ATARI if atari else {})),
        "universe://127.0.0.1:0+0",
        auth=password,
        keys=_KEYS.get(name),
        page=address,
        name=name,
        rate=given.rate or (60 if atari else min(30, make.metadata.get("render_fps", 30))),
    )
    if not server.player.controls.keys:
        raise RlwireError(f"{given.env_id} has no keys: name some, rlwire serve --page --keys ...")
    # A signal may come before `serve_forever` handles it.
    with contextlib.suppress(KeyboardInterrupt), server:
        assert server.page is not None
        url = server.page.url
        secret = "" if password is None else f", password {password}"
        print(f"{name} is at {url}{secret} (Ctrl-C ends it)", flush=True)
        shows = {"BROWSER", "DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys()
        if not given.no_browser and (shows or sys.platform != "linux"):
            threading.Thread(target=webbrowser.open, args=[url], daemon=True).start()
        server.serve_forever()
