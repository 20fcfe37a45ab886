"""The command line as a child of a sweep: ``python -m cramerl.cli.child train ...``; it does not outlive its parent.

``--copy FOLDER URL ATTEMPT`` before the command keeps a copy of the run's folder in a storage.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from cramerl.cli.main import main as cli

_GRACE_SECONDS = 120.0  # for a last checkpoint after the parent is gone


def main() -> int:
    """Do a command; stop it with a checkpoint on SIGINT, and when standard input, a pipe from the parent, closes."""
    # A worker of Ray keeps Ctrl-C from itself, and a child has that from its parent.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    # Until training has begun nothing is half-written, and an exception in the midst of an import may get lost.
    signal.signal(signal.SIGINT, _leave)
    threading.Thread(target=_watch_parent, daemon=True).start()
    words = sys.argv[1:]
    if words[:1] != ["--copy"]:
        return cli(words)
    folder, url, attempt = words[1:4]
    return _copied(words[4:], Path(folder), url, attempt)


def _copied(words: list[str], folder: Path, url: str, attempt: str) -> int:
    """Do a command and copy its run after every checkpoint, before it goes on, and at its end.

    Training waits for the copy: what a machine takes with it when it is lost is then one iteration at most.
    """
    from cramerl.runs import training
    from cramerl.sweep.mirror import StoredRun

    stored = StoredRun(url, attempt)
    training.after_checkpoint = stored.push
    status = cli(words)
    if folder.is_dir():
        stored.push(folder)
        shutil.rmtree(folder, ignore_errors=True)  # the worker may be gone, and replays are large
    return status


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
