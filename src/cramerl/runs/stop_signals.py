"""Signals as requests to stop, which are honoured whatever the process does meanwhile.

A handler that raises is not enough: while libraries are loaded and programs compiled, an exception may get lost in a
callback of somebody else's code.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

_AGAIN_SECONDS = 1.0  # after which an exception that has not ended the work is raised again
_TIMES = 5  # that it is, before the process ends without clean-up


@contextmanager
def end_on_signal() -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM end the block: they raise KeyboardInterrupt and SystemExit, again if that gets lost.

    Yields:
        The exit status that the signals ask for, once for each that came.
    """
    came: list[int] = []
    over, lost = threading.Event(), threading.Event()
    in_main_thread = threading.current_thread() is threading.main_thread()

    def end(number: int, _: Any) -> None:
        came.append(128 + number)
        if len(came) == 1:
            threading.Thread(target=insist, args=(number,), daemon=True).start()
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    def insist(number: int) -> None:
        for _ in range(_TIMES):
            lost.wait(_AGAIN_SECONDS)
            lost.clear()
            if over.wait(0.05):
                return
            signal.pthread_kill(threading.main_thread().ident or 0, number)
        if not over.wait(_AGAIN_SECONDS):
            os._exit(128 + number)

    def unraisable(found: Any) -> None:
        if came and issubclass(found.exc_type, (KeyboardInterrupt, SystemExit)):
            lost.set()
        else:
            told_before(found)

    told_before = sys.unraisablehook
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # and not a child's of a sweep
    with _handled([signal.SIGTERM, *([signal.SIGINT] if ours else [])], end):
        if in_main_thread:
            sys.unraisablehook = unraisable
        try:
            yield came
        finally:
            over.set()
            if in_main_thread:
                sys.unraisablehook = told_before


@contextmanager
def stop_on_signal(announce: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C or SIGTERM into a request to stop, which the block polls; the next does what it did before.

    A SIGTERM is raised again after the block, because it asks for more than that: the process is to end.
    """
    requested, terminated, numbers = threading.Event(), threading.Event(), (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}

    def on_signal(number: int, _: Any) -> None:
        requested.set()
        if number == signal.SIGTERM:
            terminated.set()
        for one in numbers:
            if before[one] not in (signal.SIG_IGN, None):
                signal.signal(one, before[one])
        announce()

    with _handled(numbers, on_signal):
        yield requested.is_set
    if terminated.is_set():
        signal.raise_signal(signal.SIGTERM)


@contextmanager
def leave_on_interrupt(sentence: str) -> Iterator[Callable[[], None]]:
    """Let Ctrl-C and SIGTERM end the process at once, until the block calls the function it is given.

    Afterwards they do what they did before. Nothing may be half-written until then.
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
