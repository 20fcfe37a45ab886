"""The start of the ``cramerl`` command, outside the package: Ctrl-C ends it quietly while the package is imported."""

from __future__ import annotations

import os
import signal
from types import FrameType


def main() -> int:
    """Import the command and run it."""
    # An ignored signal stays ignored, as in a shell's background jobs.
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)

    from cramerl.cli.main import main as command  # a tenth of a second, most of it NumPy

    signal.signal(signal.SIGINT, before)
    return command()


def _leave(number: int, _: FrameType | None) -> None:
    os._exit(128 + number)  # nothing has been done yet
