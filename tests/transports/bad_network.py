"""Runs a program in a network namespace that loses, repeats, delays and reorders datagrams.

    unshare --net python bad_network.py netem --loss 0.3 -- python program.py ...

The program finds in its environment where a server listens, ``BAD_NETWORK_BIND``, and which host a
client sends to, ``BAD_NETWORK_HOST``; ports are the same on both. It speaks real UDP through the
kernel; nothing leaves the namespace. Two ways, since not every kernel has netem:

netem  the kernel's own emulator, ``tc qdisc ... netem``, on the loopback interface
tun    a TUN interface: the kernel hands each packet to this program, which maltreats it and gives
       it back with source and destination swapped. So what is sent to 10.99.0.2 arrives at
       10.99.0.1 as if from 10.99.0.2, and the answer takes the same way. (The checksums stay
       right: they are sums.)

`why_not` says why a way is not open on this machine. Only the standard library is needed.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import os
import random
import select
import shutil
import struct
import subprocess
import sys
import threading
import time

DEVICE = "bad0"
BIND = {"netem": "127.0.0.1", "tun": "10.99.0.1"}
HOST = {"netem": "127.0.0.1", "tun": "10.99.0.2"}

UNSHARE = ["unshare", "--net"] + ([] if os.name == "posix" and os.geteuid() == 0 else ["-r"])


def why_not(way: str) -> str | None:
    """Return why datagrams cannot be maltreated in this way here, None if they can."""
    if not sys.platform.startswith("linux"):
        return "network namespaces are Linux's"
    search = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    for tool in ("unshare", "ip", *(["tc"] if way == "netem" else [])):
        if shutil.which(tool, path=search) is None:
            return f"{tool} is not installed"
    done = subprocess.run(
        command(way, [sys.executable, "-c", ""]), capture_output=True, text=True, timeout=60
    )
    if done.returncode == 0:
        return None
    return " ".join(done.stderr.split()) or f"exit status {done.returncode}"


def command(way: str, program: list[str], **chances: float) -> list[str]:
    """Return the command that runs `program` over a bad network."""
    options = [f"--{name}={value}" for name, value in chances.items()]
    return [*UNSHARE, sys.executable, __file__, way, *options, "--", *program]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=["netem", "tun"])
    parser.add_argument("--loss", type=float, default=0.0, help="share that does not arrive")
    parser.add_argument("--duplicate", type=float, default=0.0, help="share that arrives twice")
    parser.add_argument("--reorder", type=float, default=0.0, help="share that overtakes others")
    parser.add_argument("--delay", type=float, default=0.005, help="seconds, at the most half more")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("program", nargs="+")
    options = parser.parse_args()
    os.environ["PATH"] += os.pathsep + os.pathsep.join(["/usr/sbin", "/sbin"])
    try:
        run("ip", "link", "set", "lo", "up")
        if options.way == "netem":
            netem(options)
        else:
            tun(options)
    except (OSError, subprocess.CalledProcessError) as error:
        print(getattr(error, "stderr", "") or error, file=sys.stderr)
        return 1
    os.environ["BAD_NETWORK_BIND"] = BIND[options.way]
    os.environ["BAD_NETWORK_HOST"] = HOST[options.way]
    return subprocess.call(options.program)


def run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True)


def netem(options: argparse.Namespace) -> None:
    milliseconds = options.delay * 1000
    rule = ["loss", f"{options.loss:%}", "duplicate", f"{options.duplicate:%}"]
    rule += ["delay", f"{milliseconds * 1.25}ms", f"{milliseconds / 4}ms"]
    if options.reorder:
        rule += ["reorder", f"{options.reorder:%}"]
    run("tc", "qdisc", "add", "dev", "lo", "root", "netem", *rule)


def tun(options: argparse.Namespace) -> None:
    import fcntl

    file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    # TUNSETIFF; IFF_TUN | IFF_NO_PI: packets without anything around them.
    fcntl.ioctl(file, 0x400454CA, struct.pack("16sH22x", DEVICE.encode(), 0x0001 | 0x1000))
    run("ip", "address", "add", f"{BIND['tun']}/24", "dev", DEVICE)
    run("ip", "link", "set", DEVICE, "up")
    threading.Thread(target=maltreat, args=(file, options), daemon=True).start()


def maltreat(file: int, options: argparse.Namespace) -> None:
    draw = random.Random(options.seed)
    held: list[tuple[float, int, bytes]] = []  # by the time when it is let go
    number = itertools.count()
    while True:
        wait = max(0.0, held[0][0] - time.monotonic()) if held else None
        if select.select([file], [], [], wait)[0]:
            packet = os.read(file, 65_535)
            if packet[0] >> 4 == 4 and packet[9] == 17:  # UDP over IPv4
                packet = packet[:12] + packet[16:20] + packet[12:16] + packet[20:]
                for _ in range(1 + (draw.random() < options.duplicate)):
                    if draw.random() < options.loss:
                        continue
                    delay = options.delay * draw.uniform(1, 1.5)
                    if draw.random() < options.reorder:
                        delay = 0.0
                    heapq.heappush(held, (time.monotonic() + delay, next(number), packet))
        while held and held[0][0] <= time.monotonic():
            os.write(file, heapq.heappop(held)[2])


if __name__ == "__main__":
    sys.exit(main())
