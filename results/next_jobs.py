"""Does the sweeps of standard input as one: the next jobs, in their order, that are expected to end in time.

Each line is a name, `--speed` (steps a second of as many of its jobs as `--jobs` says, as far as known) and the words
of `cramerl sweep`; `study.sh` and `defaults.sh` write such lines. A line whose `--best-of` is not finished waits.
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
from cramerl.sweep.folder import clear_folder, locked, write_record
from cramerl.sweep.run import require_buildable
from cramerl.sweep.together import Agenda, Durations, Executors, Request, Schedule, foresee, make_agenda


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


Beginnings = tuple[str, ...]  # of the names of lines that are asked for


def make_agenda_of(lines: Sequence[Line], only: Beginnings) -> Agenda:
    """What is to do for the lines whose names begin so; all are planned, because names of folders depend on all."""
    agenda = make_agenda([line.request for line in lines])
    return agenda._replace(work=[one for one in agenda.work if one.request.name.startswith(only)])


def show(lines: Sequence[Line], only: Beginnings, minutes: float | None) -> None:
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
    about = f", about {math.ceil(total / 60)} minutes in all" if agenda.work else ""
    print(f"{sum(done for _, done in counts)} jobs done, {len(agenda.work)} to do{about}")
    if minutes is not None:
        ready = {line.request.name for line in lines if not line.waits}
        started, _ = foresee([one for one in agenda.work if one.request.name in ready], durations, 60 * minutes)
        print(f"in {minutes:g} minutes: {len(started)} jobs")
        for one in started:
            print(f"    {one.name}: {durations.expected(one) / 60:.1f} minutes")


def do(
    lines: Sequence[Line], only: Beginnings, failed: dict[str, str], deadline: float | None, signals: list[int]
) -> State:
    """Do the jobs that fit; the lines must be ready. What failed is not tried again, and added to."""
    with ExitStack() as stack:
        outs = dict.fromkeys(line.request.out for line in lines if line.request.name.startswith(only))
        lines = [line for line in lines if line.request.out in outs]
        locks = {out: stack.enter_context(locked(out)) for out in outs}
        agenda = make_agenda_of(lines, only)
        durations = Durations(outs)
        failed.update(find_unbuildable(agenda, durations, deadline))
        record(lines, agenda, failed)
        work = {one.name: one for one in agenda.work if one.name not in failed}
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
        for job in state.left:  # what is not resumed would look as if it had been made
            if not job.resumable and Path(job.folder).exists():
                clear_folder(Path(job.folder))
        record(lines, agenda, failed)
        return state


def find_unbuildable(agenda: Agenda, durations: Durations, deadline: float | None) -> dict[str, str]:
    """Jobs of sweeps whose next jobs would fail at once, such as those of a game that is not installed."""
    found: dict[str, str] = {}
    tried: set[str] = set()
    while True:
        left = [one for one in agenda.work if one.name not in found]
        soon, _ = foresee(left, durations, None if deadline is None else deadline - time.monotonic())
        first = next((one.request for one in soon if one.name not in tried), None)
        if first is None:
            return found
        mine = [one for one in soon if one.request is first]
        tried |= {one.name for one in mine}
        try:
            require_buildable(agenda.plans[first.out]._replace(jobs=[one.job for one in mine]))
        except ValueError as error:
            found |= {one.name: str(error) for one in left if one.request is first}


def record(lines: Sequence[Line], agenda: Agenda, failed: dict[str, str]) -> None:
    """Write the records of all sweeps, also of those whose jobs come later: a choice must know what it waits for."""
    for line in lines:
        out = line.request.out
        inner = {
            job.folder: failed[str(out / job.folder)]
            for job in agenda.plans[out].jobs
            if str(out / job.folder) in failed
        }
        write_record(out, agenda.plans[out], line.command, line.chosen, inner)


def main() -> int:
    """Do, or show, the lines of standard input."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, help="do only jobs that are expected to end within so many minutes")
    parser.add_argument("--only", default="", help="do only the sweeps whose names begin so; with commas, so or so")
    parser.add_argument("--dry-run", action="store_true", help="show what is missing, and do nothing")
    options = parser.parse_args()
    deadline = None if options.minutes is None else time.monotonic() + 60 * options.minutes
    only = tuple(options.only.split(","))
    texts = [line for line in sys.stdin.read().splitlines() if line.strip()]
    lines = [read_line(text) for text in texts]
    if options.dry_run:
        show(lines, only, options.minutes)
        return 0
    failed: dict[str, str] = {}
    with collect_stop_signals() as signals:
        while True:
            waiting = sum(bool(line.waits) for line in lines)
            state = do([line for line in lines if not line.waits], only, failed, deadline, signals)
            lines = [read_line(text) for text in texts]
            if state.stopping or sum(bool(line.waits) for line in lines) == waiting:
                break
    for reason in dict.fromkeys(failed.values()):
        folders = [folder for folder, why in failed.items() if why == reason]
        others = f" and {len(folders) - 1} others" if len(folders) > 1 else ""
        print(f"failed: {folders[0]}{others}: {reason}")
    show(lines, only, None)
    return 128 + signals[0] if signals else 1 if failed else 0


if __name__ == "__main__":
    sys.exit(exit_status(main))
