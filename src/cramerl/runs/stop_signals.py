"""Signals as requests to stop, which long work honours where it can stop cleanly."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any


@contextmanager
def stop_on_interrupt(announce: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C into a request to stop, which the block polls; the second one interrupts as usual."""
    requested, previous = threading.Event(), signal.getsignal(signal.SIGINT)

    def on_interrupt(*_: Any) -> None:
        requested.set()
        signal.signal(signal.SIGINT, previous)
        announce()

    with _handled([signal.SIGINT], on_interrupt):
        yield requested.is_set


@contextmanager
def leave_on_interrupt(sentence: str) -> Iterator[Callable[[], None]]:
    """Let Ctrl-C and SIGTERM end the process at once, until the block calls the function it is given.

    Afterwards they do what they did before.

    While libraries are loaded and programs compiled an exception may get lost in a callback, or come out of it as a
    traceback of somebody else's code. So nothing may be half-written until then.
    """
    begun, numbers = threading.Event(), (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}

    def leave(number: int, frame: Any) -> None:
        old = before[signal.Signals(number)]
        if begun.is_set() and callable(old):
            old(number, frame)
            return
        with suppress(OSError):
            os.write(2, f"\n{sentence}\n".encode())
        os._exit(128 + number)

    with _handled(numbers, leave):
        yield begun.set


@contextmanager
def collect_stop_signals() -> Iterator[list[int]]:
    """The signals that have asked this process to stop so far, instead of raising them: children are stopped first."""
    came: list[int] = []
    with _handled([signal.SIGINT, signal.SIGTERM, signal.SIGHUP], lambda number, _: came.append(number)):
        yield came


@contextmanager
def _handled(numbers: Iterable[int], handler: Callable[[int, Any], Any]) -> Iterator[None]:
    """Handle signals while a block runs. One that is ignored (nohup) stays ignored; other threads cannot handle any."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in numbers if in_main_thread}
    before = {number: old for number, old in before.items() if old not in (signal.SIG_IGN, None)}
    for number in before:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
