"""Chromium without a screen, which opens a page."""

import contextlib
import shutil
import subprocess

import pytest

from tests.programs import running

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
# As root and in containers; and nothing that would ask the network for anything.
FLAGS = [
    *["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"],
    *["--disable-background-networking", "--disable-component-update", "--disable-sync"],
    "--disable-dev-shm-usage",
]


@contextlib.contextmanager
def browser(address, folder, *flags):
    """Open a page with an empty profile in the folder; yield the process."""
    if BROWSER is None:
        pytest.skip("chromium is not installed")
    command = [BROWSER, *FLAGS, *flags, f"--user-data-dir={folder / 'profile'}", address]
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    with (
        (folder / "log").open("wb") as log,
        running(command, stderr=log, cwd=folder, **quiet) as it,
    ):
        yield it
