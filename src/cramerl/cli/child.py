"""The process of one job of a sweep: ``python -P -m cramerl.cli.child JOB.json``. It does not outlive its parent."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path

from cramerl.cli.main import exit_status
from cramerl.cli.train import train_with_progress
from cramerl.sweep.job import STOPPED, JobFile
from cramerl.sweep.mirror import Mirror

_GRACE_SECONDS = 120.0  # for a last checkpoint after the parent is gone


def main() -> int:
    """Do the job; stop it with a checkpoint on SIGINT, and when standard input, a pipe from the parent, closes."""
    # Ray blocks SIGINT in its workers, and a child inherits that.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    # Until training starts nothing is half-written, and an exception in the middle of an import may get lost.
    signal.signal(signal.SIGINT, lambda *_: os._exit(STOPPED))
    threading.Thread(target=_watch_parent, daemon=True).start()
    from cramerl.sweep.train_job import train_job

    job = JobFile.read(Path(sys.argv[1]))
    status = exit_status(lambda: train_with_progress(partial(train_job, job)))
    if job.mirror is not None and job.folder.is_dir():
        # The end of the log, and what was written after the last checkpoint.
        mirror = Mirror(job.mirror, job.folder, job.log)
        sys.stdout.flush()
        status = exit_status(lambda: mirror.upload() or status)
        shutil.rmtree(job.folder, ignore_errors=True)  # the worker may be gone, and replays are large
    return status


def _watch_parent() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(_GRACE_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
