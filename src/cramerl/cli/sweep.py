"""`cramerl sweep`: train many runs."""

from __future__ import annotations

import argparse
import math
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cramerl._extras import require_library
from cramerl._folders import LOG_BYTES, read_inside
from cramerl._ray import connect
from cramerl.cli.flags import given_flags, integer_from, number_in, require_deep_libraries
from cramerl.cli.settings import add_setting_flags, setting_texts, setting_words
from cramerl.deep.envs.names import env_name
from cramerl.runs.config import setting_types
from cramerl.runs.parsing import parse_seeds, parse_setting, parse_settings
from cramerl.runs.presets import preset
from cramerl.runs.setting import agent_name
from cramerl.runs.stop_signals import collect_stop_signals
from cramerl.sweep.choose import Choice, best_of, describe
from cramerl.sweep.display import sweep_display
from cramerl.sweep.execute import LocalProcesses, State, default_slots, execute
from cramerl.sweep.folder import Plan, inspect_run, locked, log_file, make_plan
from cramerl.sweep.mirror import stored_jobs
from cramerl.sweep.plan import Sweep, wanted_runs
from cramerl.sweep.ray import RayTasks, Resources, TaskSettings, job_resources, shared_variables
from cramerl.sweep.search import SEARCH, Range, Search, Space

_NAMED = ("agent", "env", "preset", "seed")  # settings that a sweep has other flags for
_RAY_ONLY = ("cpus_per_run", "gpus_per_run", "retries", "storage", "scratch", "download")
_SEARCH_ONLY = ("trials", "batch", "search_seed")
_NEEDED_FLAGS = (
    ("ray", _RAY_ONLY),
    ("storage", ("scratch", "download")),
    ("search", _SEARCH_ONLY),
    ("best_of", ("one_for_all",)),
)
_RETRIES, _TRIALS, _BATCH = 10, 20, 4
CHILD = ("-m", "cramerl.cli.child")

DESCRIPTION = """\
Train every agent in every environment with every seed and every combination of settings that have several values
(separated by commas). In gymnax environments, runs that differ only in seed, learning rate or mass penalty share a
compiled program and the folder OUT/ENV/...; elsewhere every run has its own process and folder. Either is called a job.

The same command again does what is missing: finished jobs are left alone, stopped ones resumed, and new seeds, agents,
environments or values added; a larger --steps makes jobs longer. A setting that only some agents use is given to those.
The settings below are those that people often change; --help-all shows every one.
"""

EXAMPLES = """\
examples:
  cramerl sweep runs/first --agents dqn,c51,s51 --envs Breakout-MinAtar --seeds 0-9
  cramerl sweep runs/first --agents dqn,c51,s51 --envs Breakout-MinAtar --seeds 0-19   ten seeds more
  cramerl sweep runs/atari --agents c51,s51 --envs pong,breakout --seeds 0 --jobs 2 --minutes 55
  cramerl sweep runs/lambda --agents s51 --envs Asterix-MinAtar --seeds 0-4 --mass-penalty 0,0.25,1,10 \\
      --normalisation after,before

Choosing a learning rate, then reporting with other seeds:
  cramerl sweep runs/rates --agents c51,s51 --envs Asterix-MinAtar --seeds 0-3 --learning-rate 1e-4,2.5e-4,5e-4
  cramerl sweep runs/final --agents c51,s51 --envs Asterix-MinAtar --seeds 10-19 --best-of runs/rates
The same with a search for the rate and more:
  cramerl sweep runs/rates --agents c51,s51 --envs Asterix-MinAtar --seeds 0-3 --search optuna --trials 20 \\
      --learning-rate 1e-5..1e-2 --n-step 1,3,5

On a Ray cluster, with half a GPU for every job and checkpoints in a bucket:
  cramerl sweep runs/big --agents dqn,c51,s51 --envs pong,breakout --seeds 0-9 --ray 10.0.0.1:6379 --gpus-per-run 0.5 \\
      --storage s3://my-bucket/big

Ctrl-C stops every run with a checkpoint; a second Ctrl-C stops at once. Exit status: 0 done or the minutes are over,
1 a job failed (the others are done nevertheless), 2 bad input, 130 stopped by Ctrl-C.
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
    add("--agents", required=True, metavar="LIST", help="separated by commas, such as dqn,c51,s51,u51,l51,qr,hl_gauss")
    add("--envs", required=True, metavar="LIST", help="environments, separated by commas; names as for cramerl train")
    add("--seeds", required=True, metavar="RANGE", help="such as 0-9 or 0,2,5-7")
    add("--preset", metavar="NAME", help="settings to start from (default: fits each environment)")
    text = "an earlier sweep: for each agent and environment, use the settings of its best variant by score, the mean "
    text += "over seeds of the return in the last fifth of the steps. Its seeds cannot be used again"
    add("--best-of", type=Path, metavar="FOLDER", help=text)
    text = (
        "with --best-of: one variant of each agent for all environments, the one with the best mean over them of the "
    )
    text += "score divided by the agent's best there"
    add("--one-for-all", action="store_true", help=text)
    text = "keep runs of the same agent and environment with other settings, such as another n-step, in this folder "
    text += "(otherwise an error); a report shows them as variants"
    add("--allow-variants", action="store_true", help=text)
    text = "jobs at once, which share an accelerator's memory (default: 1 with an accelerator, else one per two cores; "
    text += "with --ray as many as there are resources for)"
    add("--jobs", type=integer_from(1, 1024), metavar="N", help=text)
    add("--max-lanes", type=integer_from(1, 4096), default=4096, metavar="N", help="most runs in one program")
    text = "stop after M minutes with checkpoints; the same command continues later"
    add("--minutes", type=number_in("> 0", lambda value: 0 < value < 1e6), metavar="M", help=text)
    text = "print the jobs that are left to do (of a search, those known now), and do nothing"
    add("--dry-run", action="store_true", help=text)
    _configure_ray(parser)
    _configure_search(parser)
    add_setting_flags(parser, _NAMED)


def _configure_ray(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group(
        "many machines (extra ray)",
        "Workers of a Ray cluster do the jobs; those of a lost worker or machine are resumed elsewhere. Records are "
        "the same as on one machine. The same command continues a sweep, with or without --ray.",
    ).add_argument
    text = "use a Ray cluster: host:port of its head, ray://host:port, or auto for one that runs here; without an "
    text += "address $RAY_ADDRESS, else one is started here"
    add("--ray", nargs="?", const="", metavar="ADDRESS", help=text)
    number = number_in(">= 0", lambda value: 0 <= value < 1e4)
    add("--cpus-per-run", type=number, metavar="X", help="CPUs of a job (default: 2, or all)")
    number = number_in(">= 0, whole above 1", lambda value: 0 <= value < 1e4 and (value <= 1 or value == int(value)))
    text = "GPUs of a job, or a fraction of one (default: 1 if the cluster has any)"
    add("--gpus-per-run", type=number, metavar="X", help=text)
    text = f"how often a job may be lost before it has failed (default: {_RETRIES})"
    add("--retries", type=integer_from(0, 1000), metavar="N", help=text)
    text = "keep checkpoints and records in s3://..., gs://..., file:///... or another place that fsspec knows, "
    text += "uploaded after every iteration; OUT gets the records. Without it every machine must see OUT"
    add("--storage", metavar="URL", help=text)
    add("--scratch", metavar="DIR", help="with --storage: where machines train (default: their temporary folder)")
    text = "with --storage: what OUT gets; all: checkpoints too, for play, watch and export (default: records)"
    add("--download", choices=("records", "all"), help=text)


def _configure_search(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group(
        "search over settings (extra optuna)",
        "Settings with several values, or with a range LOW..HIGH, are chosen by the scores of earlier trials: the mean "
        "over seeds of the return in the last fifth of the steps. Then report with other seeds and --best-of OUT.",
    ).add_argument
    add("--search", choices=("optuna",), help="search with Optuna instead of trying every combination")
    text = f"settings to try, for each agent in each environment (default: {_TRIALS})"
    add("--trials", type=integer_from(1, 10**5), metavar="N", help=text)
    text = f"trials that are chosen, and then run, together (default: {_BATCH})"
    add("--batch", type=integer_from(1, 10**4), metavar="N", help=text)
    add("--search-seed", type=integer_from(0, 2**31 - 1), metavar="N", help="seed of the search (default: 0)")


def run(options: argparse.Namespace) -> int:
    """Train what is missing."""
    require_deep_libraries()
    _require_fitting_flags(options)
    deadline = None if options.minutes is None else time.monotonic() + 60 * options.minutes
    sweep, space, choices = read_sweep(options)
    for choice in choices:
        print(describe(choice), file=sys.stderr)
    # Ray may start processes, which must not inherit the threads of JAX: connect before it is imported.
    with _cluster(options) as cluster:
        from cramerl.sweep.run import require_buildable, run_sweep

        with tempfile.TemporaryDirectory() as copy:  # planning must not change a search
            search = _search(options, sweep, space, Path(copy))
            asked = sweep if search is None else search.sweep()
            plan = make_plan(asked, options.out, stored_jobs(options.storage) if options.storage else ())
            require_buildable(plan)  # before anything is written
            if options.dry_run:
                _print_plan(options.out, plan, search)
                return 0
        with collect_stop_signals() as signals, locked(options.out) as lock:
            search = _search(options, sweep, space, options.out)
            plan, state = run_sweep(
                sweep,
                options.out,
                lambda plan: _execute(options, plan, lock, signals, deadline, cluster),
                command=command_line(options),
                chosen=[choice.to_json(options.best_of) for choice in choices],
                search=search,
                storage=options.storage,
                checkpoints=options.download == "all",
            )
    _print_outcome(options, plan, state, search)
    if signals:
        print(f"cramerl: stopped; {how_to_continue(state)}", file=sys.stderr)
        return 128 + signals[0]
    return 1 if state.failed else 0


def _require_fitting_flags(options: argparse.Namespace) -> None:
    """Raise ValueError for flags that would be ignored."""
    for needed, names in _NEEDED_FLAGS:
        for flag in given_flags(options, names) if getattr(options, needed) is None else ():
            name = f"--{needed.replace('_', '-')}"
            raise ValueError(f"{flag} is used only with {name}: leave it out, or add {name}")
    if options.search is not None:
        require_library("optuna")
        for flag in given_flags(options, ("best_of", "allow_variants")):
            raise ValueError(f"--search and {flag} must not be combined: one sweep searches, another reports")


def read_sweep(options: argparse.Namespace) -> tuple[Sweep, Space, list[Choice]]:
    """The sweep that a command line asks for, what to search in it, and what an earlier sweep chose for it."""
    texts = setting_texts(options, _NAMED)
    ranges = {name: span for name, text in texts.items() if (span := parse_range(name, text)) is not None}
    if ranges and options.search is None:
        name = next(iter(ranges))
        raise ValueError(f"{name} must be one or more values, or a range with --search optuna, got {texts[name]!r}")
    values = {name: parse_settings(name, text) for name, text in texts.items() if name not in ranges}
    axes = {name: tuple(several) for name, several in values.items() if len(several) > 1}
    changes = {name: several[0] for name, several in values.items() if len(several) == 1}
    agents, envs = _names(options.agents, "agents", agent_name), _names(options.envs, "envs", env_name)
    seeds = parse_seeds(options.seeds)
    for agent in agents:
        preset(options.preset, agent, envs[0])  # a wrong name is an error before another folder is read
    space: Space = {}
    if options.search is not None:
        space = {**axes, **ranges}
        if not space:
            raise ValueError(
                "--search needs a range such as --learning-rate 1e-5..1e-3, or a setting with several values"
            )
        # The ends stand for the values between them: a wrong one is an error before anything is tried.
        ends = {name: values[:2] if name in ranges else values for name, values in space.items()}
        wanted_runs(Sweep(agents, envs, seeds, ends, changes, options.preset))
        axes = {}
    choices: list[Choice] = []
    if options.best_of is not None:
        if options.best_of.resolve() == options.out.resolve():
            raise ValueError(f"--best-of must be another folder than OUT, got {options.best_of} for both")
        choices = best_of(options.best_of, agents, envs, seeds, one_for_all=options.one_for_all)
    chosen = {(choice.agent, choice.env): choice.settings for choice in choices}
    for name in (*axes, *changes):
        if any(name in settings for settings in chosen.values()):
            raise ValueError(f"{name} is chosen by --best-of {options.best_of} and must not be given too")
    fixed = (options.preset, chosen, options.max_lanes)
    return Sweep(agents, envs, seeds, axes, changes, *fixed, allow_variants=options.allow_variants), space, choices


def parse_range(name: str, text: str) -> Range | None:
    """The range that a text such as ``1e-5..1e-3`` means; None if it is not a range."""
    hint = setting_types()[name]
    if hint not in (int, float, float | None) or ".." not in text:
        return None
    low, high = (parse_setting(name, end.strip()) for end in text.split("..", 1))
    if not low < high or not math.isfinite(high - low):
        raise ValueError(f"{name} must be a range LOW..HIGH with LOW < HIGH and a finite width, got {text!r}")
    return Range(low, high, integer=hint is int)


def _names(text: str, name: str, known_as: Callable[[str], str]) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(known_as(part.strip()) for part in text.split(",")))
    if not all(names):
        raise ValueError(f"--{name} must be names separated by commas, got {text!r}")
    return names


@contextmanager
def _cluster(options: argparse.Namespace) -> Iterator[tuple[Any, Resources] | None]:
    """The module ray, connected, and what a job takes; None if there is no cluster to use, or nothing to do."""
    if options.ray is None or options.dry_run:
        yield None
        return
    print(f"connecting to {options.ray} ..." if options.ray else "starting Ray ...", file=sys.stderr)
    with connect(options.ray or None, import_from_here=False) as ray:
        asked = (options.cpus_per_run, options.gpus_per_run)
        yield ray, job_resources(ray.nodes(), *asked, must_fit=options.jobs is None)


def _search(options: argparse.Namespace, sweep: Sweep, space: Space, folder: Path) -> Search | None:
    """The search that is asked for, as far as it is; it keeps its trials in a folder, if not in OUT then in a copy."""
    if options.search is None:
        return None
    if folder != options.out and (options.out / SEARCH).exists():
        (folder / SEARCH).write_bytes(read_inside(options.out, SEARCH, most=LOG_BYTES))
    numbers = {"trials": options.trials or _TRIALS, "batch": options.batch or _BATCH, "seed": options.search_seed or 0}
    return Search(options.out, space, sweep, **numbers, file=folder / SEARCH)


def _execute(
    options: argparse.Namespace,
    plan: Plan,
    lock: int,
    signals: list[int],
    deadline: float | None,
    cluster: tuple[Any, Resources] | None,
) -> State:
    if cluster is None:
        number = min(options.jobs or default_slots(len(plan.jobs)), max(1, len(plan.jobs)))
        executor, slots = LocalProcesses(options.out, number, lock, CHILD), lambda: number
    else:
        ray, resources = cluster
        scratch = os.path.abspath(options.scratch) if options.scratch else ""
        where = (options.out.resolve(), CHILD, resources, options.storage, scratch)
        retries = _RETRIES if options.retries is None else options.retries
        settings = TaskSettings(*where, shared_variables(os.environ))
        executor = RayTasks(ray, settings, retries, checkpoints=options.download == "all")
        slots = (lambda: options.jobs) if options.jobs else executor.slots
    with sweep_display(sys.stderr, options.out, len(plan.done)) as show:
        requests = {"stop_requests": lambda: len(signals), "deadline": deadline}
        return execute(plan.jobs, executor, slots, on_progress=show, **requests)


def command_line(options: argparse.Namespace) -> str:
    """The command line, without what does not change its result: processes at once, minutes, machines."""
    words = ["cramerl", "sweep", str(options.out), "--agents", options.agents, "--envs", options.envs]
    words += ["--seeds", options.seeds]
    for name in ("preset", "best_of", "search", "trials", "batch", "search_seed"):
        if getattr(options, name) is not None:
            words += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    words += ["--one-for-all"] * options.one_for_all
    words += ["--allow-variants"] * options.allow_variants
    for name, text in setting_texts(options, _NAMED).items():
        words += setting_words(name, text)
    return shlex.join(words)


def _print_plan(out: Path, plan: Plan, search: Search | None) -> None:
    """One line for each job that is left."""
    print(f"{_jobs(plan)} in {out}: {len(plan.done)} done, {len(plan.jobs)} to do")
    if search is not None:
        asked = sum(map(len, search.tried.values()))
        later = f" of {asked + search.left}; their scores will choose the next" if search.left else ""
        print(f"trials chosen by the search: {asked}{later}")
    starts = {"new": "new", "resume": "resume from step {step:,}", "restart": "start again, replacing its log"}
    for job in plan.jobs:
        runs = f"{len(job.group)} runs" if len(job.group) > 1 else "1 run"
        print(f"{out / job.folder}: {runs}, {job.steps:,} steps, {starts[job.start].format(step=job.step)}")


def _print_outcome(options: argparse.Namespace, plan: Plan, state: State, search: Search | None) -> None:
    """What is done, failed, diverged and left."""
    out = options.out
    for line in () if search is None else search.describe_best():
        print(line)
    done = len(plan.done) + len(state.done)
    parts = [f"{done} done" + (f" ({len(plan.done)} of them before)" if plan.done and state.done else "")]
    parts += [f"{len(state.failed)} failed"] if state.failed else []
    parts += [f"{len(state.left)} left"] if state.left else []
    print(f"{_jobs(plan)} in {out}: {', '.join(parts)}")
    for folder, reason in state.failed.items():
        print(f"failed: {folder}: {reason} (its output: {log_file(out, folder)})")
    for folder in [*(job.folder for job in plan.done), *state.done]:
        found = inspect_run(out / folder)
        if found.diverged:
            number = f"{len(found.diverged)} of {len(found.group)} runs"
            print(f"diverged: {folder}: {number}: {found.group.describe(found.diverged)}")
    if state.left:
        over = f"stopped after {options.minutes:g} minutes" if options.minutes is not None else "stopped"
        print(f"{over}; {how_to_continue(state)}")
    elif done:
        print(f"to see them: cramerl report {shlex.quote(str(out))}")


def how_to_continue(state: State) -> str:
    """What happens to the jobs that are left."""
    text = "the same command continues"
    if all(job.resumable for job in state.left):
        return text
    return f"{text}; stopped jobs start again from the beginning, because their checkpoints are not 'full'"


def _jobs(plan: Plan) -> str:
    number = len(plan.jobs) + len(plan.done)
    return f"{number} {'job' if number == 1 else 'jobs'}"
