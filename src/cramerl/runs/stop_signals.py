"""Ctrl-C as a wish to stop, which long work asks for where it can be left."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def stop_on_interrupt(announce: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C into a wish to stop, which the loop asks for; the second one interrupts as usual."""
    wished = threading.Event()

    def on_interrupt(*_: Any) -> None:
        wished.set()
        signal.signal(signal.SIGINT, previous)
        announce()

    if threading.current_thread() is not threading.main_thread():
        yield wished.is_set
        return
    previous = signal.getsignal(signal.SIGINT)
    if previous is None or previous == signal.SIG_IGN:
        yield wished.is_set
        return
    signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield wished.is_set
    finally:
        signal.signal(signal.SIGINT, previous)
