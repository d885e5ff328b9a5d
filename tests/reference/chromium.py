"""Chromium without a screen, which opens a page."""

import contextlib
import os
import shutil
import signal
import subprocess

import pytest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
# As root and in containers; and nothing that would ask the network for anything.
FLAGS = [
    *["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"],
    *["--disable-background-networking", "--disable-component-update", "--disable-sync"],
    "--disable-dev-shm-usage",
]


@contextlib.contextmanager
def browser(address, folder):
    if BROWSER is None:
        pytest.skip("chromium is not installed")
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [BROWSER, *FLAGS, f"--user-data-dir={folder / 'profile'}", address],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
            cwd=folder,
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
