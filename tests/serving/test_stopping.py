"""Waiting for a signal or another thread's word."""

import signal
import threading

import pytest

from rlwire.serving.stopping import keep_signals, stop_signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_the_wait_for_stop(number):
    before = signal.getsignal(number)
    with stop_signals() as stopping:
        timer = threading.Timer(0.05, signal.raise_signal, [number])
        timer.start()
        assert stopping.wait() == signal.Signals(number).name
        timer.join()
    assert signal.getsignal(number) is before
    assert signal.set_wakeup_fd(-1) == -1


@pytest.mark.parametrize("installed", [signal.SIGINT, signal.SIGTERM])
def test_signal_while_the_handlers_are_installed_ends_the_wait(installed, monkeypatch):
    """`rlwire demo` once slept through a Ctrl-C that followed its first line at once."""
    install = signal.signal

    def install_and_raise(number, handler):
        before = install(number, handler)
        if number == installed:
            monkeypatch.undo()
            signal.raise_signal(number)
        return before

    monkeypatch.setattr(signal, "signal", install_and_raise)
    with stop_signals() as stopping:
        too_late = threading.Timer(5, stopping.ask)
        too_late.start()
        assert stopping.wait() == installed.name
        too_late.cancel()


def test_interrupt_before_the_handlers_leaves_no_trace(monkeypatch):
    set_wakeup_fd, before = signal.set_wakeup_fd, signal.getsignal(signal.SIGINT)

    def set_and_raise(*arguments, **options):
        monkeypatch.undo()
        set_wakeup_fd(*arguments, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(signal, "set_wakeup_fd", set_and_raise)
    with pytest.raises(KeyboardInterrupt), stop_signals():
        pass
    assert signal.getsignal(signal.SIGINT) is before
    assert signal.set_wakeup_fd(-1) == -1


def test_signal_before_the_wait_counts_and_handlers_set_by_others_are_replaced():
    with stop_signals() as stopping:
        with keep_signals():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.raise_signal(signal.SIGTERM)
        assert stopping.wait() == "SIGTERM"


def test_stop_request_from_another_thread_ends_the_wait():
    with stop_signals() as stopping:
        timer = threading.Timer(0.05, stopping.ask)
        timer.start()
        assert stopping.wait() == ""
        timer.join()
    stopping.ask()  # too late, and harmless


def test_stop_signals_outside_the_main_thread_installs_no_handler():
    results = []

    def wait():
        with stop_signals() as stopping:
            results.append(signal.getsignal(signal.SIGTERM))
            stopping.ask()
            results.append(stopping.wait())

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join()
    assert results == [signal.getsignal(signal.SIGTERM), ""]
