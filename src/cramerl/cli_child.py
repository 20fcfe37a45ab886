"""The command line as a child of a sweep: ``python -m cramerl.cli_child train ...``; it does not outlive its parent."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import Any

from cramerl import cli

_GRACE_SECONDS = 120.0  # for a last checkpoint after the parent is gone


def main() -> int:
    """Do a command; stop it with a checkpoint on SIGINT, and when standard input, a pipe from the parent, closes."""
    # Until training has begun nothing is half-written, and an exception in the midst of an import may get lost.
    signal.signal(signal.SIGINT, _leave)
    threading.Thread(target=_watch_parent, daemon=True).start()
    return cli.main()


def _leave(*_: Any) -> None:
    os._exit(130)


def _watch_parent() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(_GRACE_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
