"""Ctrl-C as a request to stop, which long work honours where it can stop cleanly."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def stop_on_interrupt(announce: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C into a request to stop, which the block polls; the second one interrupts as usual."""
    requested = threading.Event()

    def on_interrupt(*_: Any) -> None:
        requested.set()
        signal.signal(signal.SIGINT, previous)
        announce()

    if threading.current_thread() is not threading.main_thread():
        yield requested.is_set
        return
    previous = signal.getsignal(signal.SIGINT)
    if previous is None or previous == signal.SIG_IGN:
        yield requested.is_set
        return
    signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield requested.is_set
    finally:
        signal.signal(signal.SIGINT, previous)
