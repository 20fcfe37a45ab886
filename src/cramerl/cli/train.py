"""`cramerl train`: train an agent."""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cramerl._folders import TEXT_BYTES
from cramerl.cli.flags import require_deep_libraries
from cramerl.cli.settings import add_setting_flags, setting_texts
from cramerl.deep.envs.names import env_name, imported_module, sibling
from cramerl.runs.config import LANE_SETTINGS, SETTINGS, TrainConfig, require_agent_settings
from cramerl.runs.folder import load_config, load_group, parse_object, require_new_folder
from cramerl.runs.group import RunGroup
from cramerl.runs.loggers import require_loggers
from cramerl.runs.parsing import parse_settings
from cramerl.runs.presets import PRESETS, applies, preset, require_env_settings
from cramerl.runs.progress import progress_display
from cramerl.runs.scores import tail_in_words, tail_score
from cramerl.runs.setting import agent_name
from cramerl.runs.stop_signals import leave_on_interrupt

if TYPE_CHECKING:
    from cramerl.runs.trainer import OnProgress, Run, Status

_NAMED = ("agent", "env", "preset")  # settings that have no flag of the usual kind

EXAMPLES = """\
examples:
  cramerl train s51 Breakout-MinAtar --steps 1e6 --seed 0
  cramerl train u51 CartPole-v1 --double-q --n-step 3 --out runs/mine
  cramerl train c51 pong --preset machado --tensorboard
  cramerl train s51 Breakout-MinAtar --seed 0-4           five seeds in one program
  cramerl train s51 pong --print-config > pong.json       settings to look at and change, then
  cramerl train s51 pong --config pong.json

Ctrl-C stops with a checkpoint; `cramerl resume RUN` continues from it. Exit status: 0 done, 1 the loss was no longer
finite (of several runs: in all of them), 2 bad input, 130 stopped by Ctrl-C.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    presets = "\n".join(f"  {name:<12}{text}" for name, text in PRESETS.items())
    parser.usage = "cramerl train AGENT ENV [--preset NAME | --config FILE] [--out FOLDER] [--SETTING VALUE ...]"
    parser.description = (
        "Train an agent. Every setting has a flag; a setting that is not given comes from the preset, which by\n"
        "default is the one that fits the environment. Below are the settings that people often change:\n"
        "cramerl train --help-all shows all of them, and cramerl train AGENT ENV --help (or --help-all) those\n"
        "of the agent in the environment, with their values. Steps are the agent's decisions, summed over all\n"
        "parallel environments. A switch such as --double-q is turned off by --no-double-q. A setting that the\n"
        "agent or the environment does not use, such as --mass-penalty for dqn, is refused."
        f"\n\npresets:\n{presets}"
    )
    parser.epilog = EXAMPLES
    for name in ("agent", "env"):
        parser.add_argument(name, metavar=name.upper(), help=SETTINGS[name].help)
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--preset", metavar="NAME", help="settings to start from, see above (default: fits ENV)")
    start.add_argument("--config", type=Path, metavar="FILE", help="start from a run's config.json instead of a preset")
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="new or empty (default: runs/ENV__AGENT__SEED__TIME)"
    )
    parser.add_argument("--print-config", action="store_true", help="print the settings as JSON and do not train")
    add_setting_flags(parser, _NAMED, _values)


def _values(options: argparse.Namespace) -> dict[str, Any] | None:
    """The settings that the command line asks for, as far as agent and environment use them."""
    if options.agent is None or options.env is None:
        return None
    group = read_settings(options)
    config = group.first
    values = config.to_json() | {name: group.values(name) for name in LANE_SETTINGS}
    return {name: value for name, value in values.items() if applies(name, config.agent, config.env)}


def run(options: argparse.Namespace) -> int:
    """Train."""
    group = read_settings(options)
    if options.print_config:
        print(json.dumps(group.to_json(), indent=2))
        return 0
    if options.out is not None:
        require_new_folder(options.out)
    require_deep_libraries()
    require_loggers(group.first)
    with first_words(f"training {describe_subject(group.first)}") as begun:
        from cramerl.runs.training import train

        return train_with_progress(lambda on_progress: train(group, out=options.out, on_progress=on_progress), begun)


def describe_subject(config: TrainConfig) -> str:
    """The agent and the environment of a run; if two games have the environment's name, which one it is."""
    small = sibling(config.env)
    which = f" (Atari's game; {small} is a small one of the same name)" if small else ""
    return f"{config.agent} on {config.env}{which}"


@contextmanager
def first_words(text: str) -> Iterator[Callable[[], None]]:
    """Say what is about to be done while libraries are loaded; until training starts, a signal ends the process."""
    print(f"{text}; loading ...", file=sys.stderr, flush=True)
    with leave_on_interrupt("cramerl: stopped before training started") as begun:
        yield begun


def read_settings(options: argparse.Namespace) -> RunGroup:
    """The runs that the command line asks for: several values of a lane setting give several runs."""
    values = {name: parse_settings(name, text) for name, text in setting_texts(options, _NAMED).items()}
    for name, several in values.items():
        if len(several) > 1 and name not in LANE_SETTINGS:
            raise ValueError(
                f"{name} must be one value, got {len(several)}; cramerl sweep trains several, and "
                f"{', '.join(LANE_SETTINGS)} may have several here"
            )
    changes = {name: several[0] for name, several in values.items() if name not in LANE_SETTINGS}
    lanes = {name: several for name, several in values.items() if name in LANE_SETTINGS}
    if options.config is None:
        require_agent_settings(lanes, [agent_name(options.agent)])
        return RunGroup.of(preset(options.preset, options.agent, options.env, **changes), **lanes)
    try:
        group = parse_object(options.config, _read(options.config), RunGroup.from_json)
    except OSError as error:
        raise ValueError(
            f"--config must be a file of settings, {options.config} cannot be read: {error.strerror}"
        ) from error
    if group.first.agent != agent_name(options.agent):
        raise ValueError(
            f"AGENT must be {group.first.agent}, as in {options.config}, got {options.agent}: the file's learning rate "
            "and other settings were chosen for its agent; start from a preset instead"
        )
    require_agent_settings(values, [group.first.agent])
    require_env_settings(values, [env_name(options.env)])
    changed = group.replace(env=options.env, **changes)
    configs = [config for one in changed.configs for config in RunGroup.of(one, **lanes).configs]
    return RunGroup(tuple(dict.fromkeys(configs)))


def _read(file: Path) -> bytes:
    """The beginning of a file that the user named, which may be a pipe."""
    with file.open("rb") as content:
        return content.read(TEXT_BYTES)


def train_with_progress(work: Callable[[OnProgress], Run], begun: Callable[[], None] = lambda: None) -> int:
    """Train with a progress display, then print what there is now and what to do with it.

    Args:
        work: trains, and calls what it is given with the progress.
        begun: called when training starts.
    """
    from cramerl.runs.trainer import Diverged

    steps: list[int] = []
    try:
        with progress_display(sys.stderr) as show:

            def on_progress(status: Status) -> None:
                begun()
                steps.append(status.step)
                show(status)

            result = work(on_progress)
    except Diverged as error:
        print(f"cramerl: {error}", file=sys.stderr)
        return 1
    if not result.finished:
        kept = load_config(result.folder).checkpoints
        again = f"{shlex.quote(str(result.folder))}{trust_flag(load_config(result.folder))}"
        text = f"to continue from its last checkpoint: cramerl resume {again}"
        if kept != "full":
            text = f"{result.folder} cannot be resumed, because its checkpoints are {kept!r}"
        print(f"cramerl: stopped at step {result.step:,}; {text}", file=sys.stderr)
        return 130
    for line in describe_run(result, finished_before=steps[:1] == [result.step]):
        print(line)
    return 0


def trust_flag(config: TrainConfig) -> str:
    """What commands that play or resume a run need if its environment imports a module."""
    return " --trust-modules" if imported_module(config.env) else ""


def describe_run(result: Run, *, finished_before: bool) -> Iterator[str]:
    """What there is now, and what can be done with it."""
    group, here = load_group(result.folder), shlex.quote(str(result.folder))
    config = group.first
    folder = here + trust_flag(config)
    if finished_before:
        yield f"the run was finished already, after {result.step:,} steps; --steps N makes it longer"
    else:
        yield f"trained {config.agent} on {config.env}: {result.step:,} steps"
    if not any(row.get("charts/updates") for row in result.rows):
        first = f"{config.min_replay_steps:,} steps (min_replay_steps)"
        yield f"it has not learned yet: no update is made in the first {first}"
    mean, episodes = tail_score(result.rows)
    if episodes:
        counted = f"{episodes:,} episodes, with random actions and while learning"
        yield f"mean return {mean:,.2f} in training, in {tail_in_words(result.rows)} ({counted})"
    evaluated = [row for row in result.rows if "eval/episodic_return" in row]
    if evaluated:
        last = [row for row in evaluated if row["step"] == evaluated[-1]["step"]]
        mean, each = statistics.fmean(row["eval/episodic_return"] for row in last), " of each run" * (len(group) > 1)
        played = f"{last[0]['eval/episodes']} evaluation episodes{each}"
        yield f"mean return {mean:,.2f} in {played}, as play has them: with few random actions and without learning"
    yield f"the run is in {result.folder}"
    if len(group) > 1:
        yield f"{len(group)} runs were trained: {group.describe()}; play and export take one of them, --lane N (0)"
    diverged = group.diverged(result.rows)
    if diverged:
        yield f"{len(diverged)} of them diverged, their loss is no longer finite: {group.describe(diverged)}"
    if config.checkpoints != "none":
        yield f"to see how it plays:    cramerl play {folder}"
        yield f"to see its predictions: cramerl watch {folder}; with its curve on a page: cramerl report {here}"
    if config.checkpoints == "full":
        yield f"to train it longer:     cramerl resume {folder} --steps {2 * config.steps}"
