"""The command that trains many runs: sweep."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin

from cramerl.cli.flags import integer_from, minutes, require_deep_libraries
from cramerl.cli.settings import add_setting_flags, setting_texts
from cramerl.cli.sweep_ray import Cluster, add_ray_flags, cluster, require_ray_flags, storage_of
from cramerl.cli.sweep_search import (
    add_search_flags,
    asked_words,
    parse_range,
    print_best,
    require_search_flags,
    search_of,
    space_of,
)
from cramerl.runs.config import parse_setting, setting_types
from cramerl.runs.lanes import named_lanes
from cramerl.runs.loggers import require_loggers

if TYPE_CHECKING:
    from cramerl.sweep.choose import Choice
    from cramerl.sweep.execute import State
    from cramerl.sweep.folder import Plan
    from cramerl.sweep.plan import Sweep
    from cramerl.sweep.search import Range

_LEFT_OUT = ("agent", "env", "preset", "seed", "lanes")  # settings that a sweep gives otherwise
_SINGULAR = {"learning_rates": "learning_rate", "mass_penalties": "mass_penalty"}

DESCRIPTION = """\
Train every agent in every environment with every seed, each combination of settings that have several values (commas
between) included. In gymnax environments seeds, learning rates and mass penalties are lanes of one program; elsewhere
every run is a process of its own. A program or run and its folder OUT/ENV/... are called a cell.

The same command again does what is missing: finished cells are left alone, stopped ones resumed, and new seeds, agents,
environments or values added beside them; a larger --steps makes cells longer. A setting that only some agents have is
given to those.
"""

EXAMPLES = """\
examples:
  cramerl sweep runs/first --agents dqn,c51,s51 --envs Breakout-MinAtar --seeds 0-9
  cramerl sweep runs/first --agents dqn,c51,s51 --envs Breakout-MinAtar --seeds 0-19   ten seeds more
  cramerl sweep runs/atari --agents c51,s51 --envs pong,breakout --seeds 0 --jobs 2 --minutes 55
  cramerl sweep runs/lambda --agents s51 --envs Asterix-MinAtar --seeds 0-4 --mass-penalties 0,0.25,1,10 \\
      --normalisation after,before

Choosing a learning rate, then reporting with other seeds:
  cramerl sweep runs/rates --agents c51,s51 --envs Asterix-MinAtar --seeds 0-3 --learning-rates 1e-4,2.5e-4,5e-4
  cramerl sweep runs/final --agents c51,s51 --envs Asterix-MinAtar --seeds 10-19 --best-of runs/rates
The same with a search for the rate and more:
  cramerl sweep runs/rates --agents c51,s51 --envs Asterix-MinAtar --seeds 0-3 --search optuna --trials 20 \\
      --learning-rate 1e-5..1e-2 --n-step 1,3,5

On a Ray cluster, with every cell on one GPU's half and checkpoints in a bucket:
  cramerl sweep runs/big --agents dqn,c51,s51 --envs pong,breakout --seeds 0-9 --ray 10.0.0.1:6379 --gpus-per-run 0.5 \\
      --storage s3://my-bucket/big

Ctrl-C stops every run with a checkpoint; a second one stops at once. Exit status: 0 done or the minutes are over, 1 a
run failed (the others are done all the same), 2 bad input, 130 stopped by Ctrl-C.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    parser.usage = (
        "cramerl sweep OUT --agents LIST --envs LIST --seeds RANGE [--preset NAME] [--best-of FOLDER] [--jobs N] "
        "[--minutes M] [--ray [ADDRESS]] [--dry-run] [--SETTING VALUE[,VALUE ...] ...]"
    )
    parser.description, parser.epilog = DESCRIPTION, EXAMPLES
    add = parser.add_argument
    add("out", type=Path, metavar="OUT", help="folder of the sweep, new or of an earlier one")
    add("--agents", required=True, metavar="LIST", help="commas between, such as dqn,c51,s51,u51,qr,hl_gauss")
    add("--envs", required=True, metavar="LIST", help="environments, commas between; names as of cramerl train")
    add("--seeds", required=True, metavar="RANGE", help="such as 0-9 or 0,2,5-7")
    add("--preset", metavar="NAME", help="settings to start from (default: fits each environment)")
    add(
        "--best-of",
        type=Path,
        metavar="FOLDER",
        help="an earlier sweep: take, for each agent and environment, the settings it varied from its best variant, "
        "by the mean over seeds of the return in the last fifth of the steps. Its seeds cannot be used again",
    )
    add(
        "--allow-variants",
        action="store_true",
        help="keep runs of the same agent and environment with other settings, such as another n-step, in this folder "
        "(otherwise an error); a report shows them as variants",
    )
    add(
        "--jobs",
        type=integer_from(1, 1024),
        metavar="N",
        help="cells at once, which share an accelerator's memory (default: 1 with an accelerator, else one per two "
        "cores)",
    )
    add("--max-lanes", type=integer_from(1, 4096), default=4096, metavar="N", help="most lanes in one program")
    add(
        "--minutes",
        type=minutes,
        metavar="M",
        help="after so many begin nothing new and stop what runs with checkpoints; the same command goes on later",
    )
    add(
        "--dry-run",
        action="store_true",
        help="print the commands that are left to do (of a search, those known now), and do nothing",
    )
    add_ray_flags(parser)
    add_search_flags(parser)
    add_setting_flags(parser, _LEFT_OUT)


def run(options: argparse.Namespace) -> int:
    """Train what is missing."""
    require_deep_libraries()
    require_ray_flags(options)
    require_search_flags(options)
    started = time.monotonic()
    sweep, choices = _asked(options)
    for choice in choices:
        from cramerl.sweep.choose import describe

        print(describe(choice), file=sys.stderr)
    # Before JAX is here, whose threads a fork would take unawares: Ray may have to start processes.
    with cluster(options) as machines:
        storage = storage_of(options)
        search = search_of(options, sweep)
        now = sweep if search is None else search.sweep(keep=False)
        plan = _plan(now, options.out, storage.cells() if storage else ())
        _require_buildable(plan)  # before anything is written
        if options.dry_run:
            left = f"{len(plan.done)} done, {len(plan.jobs)} to do{_anew(plan, options.out)}"
            print(f"# {_counted(plan)} in {options.out}: {left}")
            if search is not None:
                print(f"# {asked_words(search)}")
            for job in plan.jobs:
                print(shlex.join(["cramerl", *job.arguments]))
            return 0
        deadline = None if options.minutes is None else started + 60 * options.minutes
        return _do(options, sweep, choices, machines, deadline)


def _do(
    options: argparse.Namespace, sweep: Sweep, choices: list[Choice], machines: Cluster | None, deadline: float | None
) -> int:
    """Plan once more, alone in the folder, do it, and say how it went."""
    from cramerl.sweep.folder import locked, write_record

    with _wishes() as wishes, locked(options.out) as lock:
        search = search_of(options, sweep)
        kept, failed = _fetched(machines), {}
        chosen = [choice.to_json(options.best_of) for choice in choices]
        while True:
            sweep = sweep if search is None else search.sweep()
            plan = _plan(sweep, options.out, kept)
            record = (options.out, plan, _command(options), chosen)
            if machines is not None and machines.storage is not None and plan.jobs:
                machines.storage.require_writable()
            write_record(*record, failed=failed)
            left = plan._replace(jobs=[job for job in plan.jobs if job.folder not in failed])
            state = _execute(options, left, lock, wishes, deadline, machines)
            failed |= state.failed
            write_record(*record, failed=failed)
            if state.left or state.stopping or search is None or not search.ask():
                break
    if search is not None:
        print_best(search)
    return _report(options, plan, state._replace(failed=failed), wishes)


def _asked(options: argparse.Namespace) -> tuple[Sweep, list[Choice]]:
    """The sweep a command line asks for, and what an earlier one chose for it."""
    from cramerl.runs.presets import preset
    from cramerl.sweep.plan import Sweep, parse_seeds, wanted_runs

    axes: dict[str, tuple[Any, ...]] = {}
    changes: dict[str, Any] = {}
    ranges: dict[str, Range] = {}
    texts: dict[str, str] = {}
    for name, text in setting_texts(options, _LEFT_OUT).items():
        single = _SINGULAR.get(name, name)
        if single in texts:
            several = next(several for several, one in _SINGULAR.items() if one == single)
            raise ValueError(f"{single} and {several} must not both be given")
        texts[single] = text
        span = parse_range(single, text)
        if span is not None:
            ranges[single] = span
            continue
        values = _values(single, text)
        if len(values) > 1:
            axes[single] = tuple(values)
        else:
            changes[single] = values[0]
    agents, envs, seeds = _list(options.agents, "agents"), _list(options.envs, "envs"), parse_seeds(options.seeds)
    for agent in agents:
        preset(options.preset, agent, envs[0])  # a wrong name is refused before another folder is read
    options.space = space_of(options, axes, ranges, texts)
    if options.space:  # the ends stand for what is between: what cannot be is refused before anything is tried
        ends = {name: values[:2] if name in ranges else values for name, values in options.space.items()}
        wanted_runs(Sweep(agents, envs, seeds, ends, changes, options.preset))
        axes = {}
    choices: list[Choice] = []
    if options.best_of is not None:
        from cramerl.sweep.choose import best_of

        if options.best_of.resolve() == options.out.resolve():
            raise ValueError(f"best-of must be another folder than OUT, got {options.best_of} for both")
        choices = best_of(options.best_of, agents, envs, seeds)
    chosen = {(choice.agent, choice.env): choice.settings for choice in choices}
    for name in (*axes, *changes):
        if any(name in settings for settings in chosen.values()):
            raise ValueError(f"{name} is chosen by --best-of {options.best_of}, and cannot be given too")
    fixed = (options.preset, chosen, options.max_lanes)
    return Sweep(agents, envs, seeds, axes, changes, *fixed, allow_variants=options.allow_variants), choices


def _values(name: str, text: str) -> list[Any]:
    """One value, or several with commas between where the setting itself is not such a list or a path."""
    hint = setting_types()[name]
    if hint is str or get_origin(hint) is tuple:
        return [parse_setting(name, text)]
    values = [parse_setting(name, part.strip()) for part in text.split(",")]
    for value in values:
        if get_args(hint) and value not in get_args(hint):
            raise ValueError(f"{name} must be one of {', '.join(get_args(hint))}, got {value!r}")
    return values


def _list(text: str, name: str) -> tuple[str, ...]:
    words = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
    if not all(words):
        raise ValueError(f"{name} must be names with commas between, got {text!r}")
    return words


def _fetched(machines: Cluster | None) -> list[str]:
    """Cells that a storage holds, whose records are now here."""
    if machines is None or machines.storage is None:
        return []
    cells = machines.storage.cells()
    for folder in cells:
        machines.storage.reconcile(folder)
    return cells


def _plan(sweep: Sweep, out: Path, kept: Collection[str] = ()) -> Plan:
    import jax

    # This process only plans: the accelerator is for the runs.
    jax.config.update("jax_platforms", "cpu")
    from cramerl.deep.envs.names import env_family
    from cramerl.sweep.folder import make_plan

    return make_plan(sweep, out, lambda env: env_family(env) == "gymnax", kept)


def _require_buildable(plan: Plan) -> None:
    """Refuse environments and settings of new cells that cannot be built."""
    from cramerl.runs.build import make_envs, make_learner
    from cramerl.sweep.plan import shape

    beginning = {job.folder for job in plan.jobs if job.fresh}
    new = {shape(cell.config): cell.config for cell in plan.cells if cell.folder in beginning}
    for config in new.values():
        require_loggers(config)
        envs = make_envs(config, 1)
        try:
            make_learner(config, envs.spec)
        finally:
            envs.close()


def _execute(
    options: argparse.Namespace,
    plan: Plan,
    lock: int,
    wishes: _Wishes,
    deadline: float | None,
    machines: Cluster | None,
) -> State:
    from cramerl.sweep.display import sweep_display
    from cramerl.sweep.execute import LocalProcesses, default_slots, execute

    if machines is not None:
        executor, slots = machines.executor()
    else:
        slots = min(options.jobs or default_slots(len(plan.jobs)), max(1, len(plan.jobs)))
        executor = LocalProcesses(options.out, [sys.executable, "-m", "cramerl.cli.child"], slots, lock)
    with sweep_display(sys.stderr, options.out, len(plan.done)) as watch:
        return execute(
            plan.jobs,
            executor,
            slots,
            watch=watch,
            wish=lambda: wishes.count,
            deadline=deadline,
            retries=machines.retries if machines else 0,
        )


def _command(options: argparse.Namespace) -> str:
    """What was asked for, without what does not change it: processes at once, minutes."""
    words = ["cramerl", "sweep", str(options.out), "--agents", options.agents, "--envs", options.envs]
    words += ["--seeds", options.seeds]
    for name in ("preset", "best_of", "search", "trials", "batch", "search_seed"):
        if getattr(options, name) is not None:
            words += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    words += ["--allow-variants"] * options.allow_variants
    for name, text in setting_texts(options, _LEFT_OUT).items():
        words += [f"--{name.replace('_', '-')}", text]
    return shlex.join(words)


def _report(options: argparse.Namespace, plan: Plan, state: State, wishes: _Wishes) -> int:
    from cramerl.sweep.execute import log_file
    from cramerl.sweep.folder import look_at

    done = len(plan.done) + len(state.done)
    parts = [f"{done} done" + (f" ({len(plan.done)} of them before)" if plan.done and state.done else "")]
    parts += [f"{len(state.failed)} failed"] if state.failed else []
    parts += [f"{len(state.left)} left"] if state.left else []
    print(f"{_counted(plan)} in {options.out}: {', '.join(parts)}")
    for folder, words in state.failed.items():
        print(f"failed: {folder}: {words} (all it said: {log_file(options.out, folder)})")
    for folder in [*plan.done, *state.done]:
        found = look_at(options.out / folder)
        if found.lost:
            lanes = found.config.lane_settings
            print(f"diverged: {folder}: {len(found.lost)} of {len(lanes)} lanes: {named_lanes(lanes, found.lost)}")
    if wishes.first is not None:
        print(f"cramerl: stopped; {_how_it_goes_on(state)}", file=sys.stderr)
        return 128 + wishes.first
    if state.left:
        over = f"stopped after {options.minutes:g} minutes" if options.minutes is not None else "stopped"
        print(f"{over}; {_how_it_goes_on(state)}")
    elif done:
        print(f"to see them: cramerl report {shlex.quote(str(options.out))}")
    return 1 if state.failed else 0


def _how_it_goes_on(state: State) -> str:
    words = "the same command goes on"
    if all(job.can_go_on for job in state.left):
        return words
    return f"{words}, with cells that were stopped from their beginning, for their checkpoints are not 'full'"


def _anew(plan: Plan, out: Path) -> str:
    """What would be lost."""
    from cramerl.runs.folder import METRICS

    logged = sum(job.fresh and (out / job.folder / METRICS).exists() for job in plan.jobs)
    return f", {logged} of them anew in place of what they have logged" if logged else ""


def _counted(plan: Plan) -> str:
    return f"{len(plan.cells)} {'cell' if len(plan.cells) == 1 else 'cells'}"


class _Wishes:
    """Counts the signals that ask to stop."""

    def __init__(self) -> None:
        self.count, self.first = 0, None

    def __call__(self, number: int, _: Any) -> None:
        self.count += 1
        self.first = self.first or number


@contextmanager
def _wishes() -> Iterator[_Wishes]:
    """Signals are counted, not raised: children are stopped first. Those that are ignored (nohup) stay ignored."""
    wishes, before = _Wishes(), {}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) not in (signal.SIG_IGN, None):
            before[number] = signal.signal(number, wishes)
    try:
        yield wishes
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
