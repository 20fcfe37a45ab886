"""Running a sweep: plan, record, execute, and ask a search what to try next."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import jax

from cramerl.runs.build import make_envs, make_learner
from cramerl.runs.config import DEFAULTS
from cramerl.runs.loggers import require_loggers
from cramerl.sweep.execute import State
from cramerl.sweep.folder import Plan, make_plan, write_record
from cramerl.sweep.mirror import Mirror, require_writable, stored_jobs
from cramerl.sweep.plan import AXES, Sweep
from cramerl.sweep.search import Search


def require_buildable(plan: Plan) -> None:
    """Raise ValueError for environments and settings of new jobs that cannot be built."""
    jax.config.update("jax_platforms", "cpu")  # this process leaves accelerators to the jobs
    # Learning rates and the like do not decide whether a program can be built.
    sized = [name for name in AXES if not isinstance(DEFAULTS[name], float)]
    new = [job.group.first for job in plan.jobs if job.start != "resume"]
    for config in {tuple(getattr(one, name) for name in ("agent", "env", *sized)): one for one in new}.values():
        require_loggers(config)
        with closing(make_envs(config, 1, trust_modules=True)) as envs:
            make_learner(config, envs.spec)


def run_sweep(
    sweep: Sweep,
    out: Path,
    execute: Callable[[Plan], State],
    *,
    command: str,
    chosen: list[dict[str, Any]],
    search: Search | None = None,
    storage: str | None = None,
    checkpoints: bool = False,
) -> tuple[Plan, State]:
    """Do what is missing, batch by batch if there is a search. The folder must be locked.

    Args:
        sweep: the runs to train.
        out: folder of the sweep.
        execute: does the jobs of a plan.
        command: the command line, for the record.
        chosen: settings that were taken from another sweep, for the record.
        search: chooses the runs instead of ``sweep``.
        storage: URL where the folders of jobs are kept.
        checkpoints: whether ``out`` gets checkpoints from the storage, not only records.

    Returns:
        The last plan, and what became of it, with everything that failed.
    """
    stored = [] if storage is None else stored_jobs(storage)
    for folder in stored:
        Mirror.of_job(f"{storage}", out, folder).synchronise(checkpoints=checkpoints)
    failed: dict[str, str] = {}
    while True:
        plan = make_plan(sweep if search is None else search.sweep(), out, stored)
        if storage is not None and plan.jobs:
            require_writable(storage)
        write_record(out, plan, command, chosen, failed)
        state = execute(plan._replace(jobs=[job for job in plan.jobs if job.folder not in failed]))
        failed |= state.failed
        write_record(out, plan, command, chosen, failed)
        if state.left or state.stopping or search is None or not search.ask():
            return plan, state._replace(failed=failed)
