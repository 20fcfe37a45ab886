"""Training one job of a sweep, in its own process.

A job can be started any number of times: it resumes if there is a checkpoint, and does nothing if it is finished.
"""

from __future__ import annotations

import time
from pathlib import Path

from cramerl.runs.folder import CONFIG, RunFolder
from cramerl.runs.trainer import OnProgress, Run
from cramerl.runs.training import resume, train
from cramerl.sweep.folder import clear_folder, inspect_run
from cramerl.sweep.job import JobFile
from cramerl.sweep.mirror import Mirror

_LOCK_SECONDS = 180.0  # longer than a process has to stop after its parent is gone


def train_job(job: JobFile, on_progress: OnProgress | None = None) -> Run:
    """Train, or resume if there is a checkpoint to resume from."""
    mirror = None if job.mirror is None else Mirror(job.mirror, job.folder, job.log)
    _wait_until_unlocked(job.folder)
    # Training waits for the upload, so that a machine that disappears takes at most one iteration with it.
    callbacks = {"on_progress": on_progress, "after_checkpoint": mirror and (lambda _: mirror.upload())}
    if (job.folder / CONFIG).exists():
        found, steps = inspect_run(job.folder), job.group.first.steps
        if found.finished and found.group.first.steps >= steps:
            return Run(job.folder, found.step, True, list(RunFolder(job.folder).metrics()))
        if found.group.first.checkpoints == "full":
            named_here = found.group.first.env == job.group.first.env  # and not in the folder alone
            longer = steps if steps > found.group.first.steps else None
            return resume(job.folder, longer, trust_modules=named_here, **callbacks)
    clear_folder(job.folder)
    return train(job.group, out=job.folder, **callbacks)


def _wait_until_unlocked(folder: Path) -> None:
    """Wait until no other process trains there: one whose worker disappeared takes a while to stop."""
    end = time.monotonic() + _LOCK_SECONDS
    while folder.is_dir():
        try:
            with RunFolder(folder).locked():
                return
        except ValueError:
            if time.monotonic() > end:
                raise
        time.sleep(0.1)
