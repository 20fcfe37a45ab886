"""Does the sweeps of standard input as one: the next jobs, in their order, that are expected to end in time.

Each line is a name, `--speed` (steps a second of as many of its jobs as `--jobs` says, as far as known) and the words of
`cramerl sweep`; `study.sh` and `defaults.sh` write such lines. A line whose `--best-of` is not finished waits for it.
"""

import argparse
import math
import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from cramerl.cli.main import exit_status
from cramerl.cli.sweep import CHILD, command_line, configure, read_sweep
from cramerl.runs.stop_signals import collect_stop_signals
from cramerl.sweep.display import sweep_display
from cramerl.sweep.execute import LocalProcesses, State, execute
from cramerl.sweep.folder import locked, write_record
from cramerl.sweep.run import require_buildable
from cramerl.sweep.together import Agenda, Durations, Executors, Request, Schedule, Work, foresee, make_agenda


class Line(NamedTuple):
    """A sweep that is asked for: its command and choices for the record, and why it has to wait, if it has to."""

    request: Request
    command: str
    chosen: list[dict[str, Any]]
    waits: str


def read_line(text: str) -> Line:
    """The sweep of a line."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("name")
    parser.add_argument("--speed", type=float, required=True)
    configure(parser)
    options = parser.parse_args(shlex.split(text))
    command, waits = command_line(options), ""
    try:
        sweep, _, choices = read_sweep(options)
    except ValueError as error:
        if options.best_of is None:
            raise
        waits, choices, first = str(error), [], options.best_of
        options.best_of = None
        sweep, _, _ = read_sweep(options)
        options.best_of = first
    request = Request(options.name, options.out, sweep, options.jobs or 1, options.speed)
    return Line(request, command, [choice.to_json(options.best_of) for choice in choices], waits)


def make_agenda_of(lines: Sequence[Line], only: str) -> Agenda:
    """What is to do for the lines whose names begin so; all are planned, because names of folders depend on all."""
    agenda = make_agenda([line.request for line in lines])
    return agenda._replace(work=[one for one in agenda.work if one.request.name.startswith(only)])


def show(lines: Sequence[Line], only: str, minutes: float | None) -> None:
    """What is missing, how long it will take, and what would be done in so many minutes."""
    agenda = make_agenda_of(lines, only)
    durations = Durations(agenda.plans)
    counts = [(line, done) for line, done in zip(lines, agenda.done, strict=True) if line.request.name.startswith(only)]
    for line, done in counts:
        left = [one for one in agenda.work if one.request is line.request]
        seconds = sum(map(durations.expected, left)) / line.request.at_once
        about = f", about {math.ceil(seconds / 60)} minutes" if left else ""
        print(f"{line.request.name}: {done} done, {len(left)} to do{about}, in {line.request.out}")
        if line.waits and left:
            print(f"    waits: {line.waits}")
    _, total = foresee(agenda.work, durations)
    print(f"{sum(done for _, done in counts)} jobs done, {len(agenda.work)} to do, about {math.ceil(total / 60)} minutes in all")
    if minutes is not None:
        ready = {line.request.name for line in lines if not line.waits}
        started, _ = foresee([one for one in agenda.work if one.request.name in ready], durations, 60 * minutes)
        print(f"in {minutes:g} minutes: {len(started)} jobs")
        for one in started:
            print(f"    {one.name}: {durations.expected(one) / 60:.1f} minutes")


def do(
    lines: Sequence[Line], only: str, failed: dict[str, str], deadline: float | None, signals: list[int]
) -> State:
    """Do the jobs that fit; the lines must be ready. What failed is not tried again, and added to."""
    with ExitStack() as stack:
        outs = dict.fromkeys(line.request.out for line in lines)
        locks = {out: stack.enter_context(locked(out)) for out in outs}
        agenda = make_agenda_of(lines, only)
        durations = Durations(outs)
        left = [one for one in agenda.work if one.name not in failed]
        seconds = None if deadline is None else deadline - time.monotonic()
        started, _ = foresee(left, durations, seconds)
        for out, plan in agenda.plans.items():
            now = {one.job.folder for one in started if one.request.out == out}
            require_buildable(plan._replace(jobs=[job for job in plan.jobs if job.folder in now]))
        record(lines, agenda, failed)
        work = {one.name: one for one in left}
        processes = max(line.request.at_once for line in lines)
        executor = Executors(work, {out: LocalProcesses(out, processes, locks[out], CHILD) for out in outs})
        schedule = Schedule(work, durations, deadline, time.monotonic)
        measured: set[str] = set()
        with sweep_display(sys.stderr, Path(), sum(agenda.done)) as display:

            def on_progress(state: State) -> None:
                for name in state.done:
                    if name not in measured:
                        measured.add(name)
                        durations.measure(work[name].request.out, work[name].job)
                display(state)

            state = execute(
                [one.job._replace(folder=name) for name, one in work.items()],
                executor,
                lambda: processes,
                on_progress=on_progress,
                stop_requests=lambda: len(signals),
                may_start=schedule.may_start,
                deadline=deadline,
            )
        failed.update(state.failed)
        record(lines, agenda, failed)
        return state


def record(lines: Sequence[Line], agenda: Agenda, failed: dict[str, str]) -> None:
    """Write the records of all sweeps, also of those whose jobs come later: a choice must know what it waits for."""
    for line in lines:
        out = line.request.out
        inner = {job.folder: failed[str(out / job.folder)] for job in agenda.plans[out].jobs if str(out / job.folder) in failed}
        write_record(out, agenda.plans[out], line.command, line.chosen, inner)


def main() -> int:
    """Do, or show, the lines of standard input."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, help="do only jobs that are expected to end within so many minutes")
    parser.add_argument("--only", default="", help="do only the sweeps whose names begin so")
    parser.add_argument("--dry-run", action="store_true", help="show what is missing, and do nothing")
    options = parser.parse_args()
    deadline = None if options.minutes is None else time.monotonic() + 60 * options.minutes
    texts = [line for line in sys.stdin.read().splitlines() if line.strip()]
    lines = [read_line(text) for text in texts]
    if options.dry_run:
        show(lines, options.only, options.minutes)
        return 0
    failed: dict[str, str] = {}
    with collect_stop_signals() as signals:
        while True:
            waiting = sum(bool(line.waits) for line in lines)
            state = do([line for line in lines if not line.waits], options.only, failed, deadline, signals)
            lines = [read_line(text) for text in texts]
            if state.stopping or sum(bool(line.waits) for line in lines) == waiting:
                break
    for folder, reason in failed.items():
        print(f"failed: {folder}: {reason}")
    show(lines, options.only, None)
    return 128 + signals[0] if signals else 1 if failed else 0


if __name__ == "__main__":
    sys.exit(exit_status(main))
