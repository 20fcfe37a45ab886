"""The commands for agents: train, resume, play, export; and what all commands share."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import math
import re
import shlex
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin

from cramerl.study.config import (
    TrainConfig,
    parse_setting,
    require_concerned,
    require_one_or_several,
    setting_types,
)
from cramerl.study.lanes import lost_lanes, named_lanes
from cramerl.study.presets import PRESETS, preset, require_heeded

if TYPE_CHECKING:
    from cramerl.deep.agent import Episode
    from cramerl.study.training import Report, Run

_LIBRARIES = ("jax", "optax", "gymnax", "gymnasium", "ale_py", "safetensors")
_GROUPS = {
    "run": "run",
    "environment": "environment",
    "learner": "learner",
    "head": "head (what the network's outputs mean)",
    "evaluation": "evaluation",
}
_NAMED = ("agent", "env", "preset")  # settings that are no flags of their own

TRAIN_EXAMPLES = """\
examples:
  cramerl train s51 Breakout-MinAtar --steps 1e6 --seed 0
  cramerl train u51 CartPole-v1 --double-q --n-step 3 --out runs/mine
  cramerl train c51 pong --preset machado --tensorboard
  cramerl train s51 Breakout-MinAtar --lanes 5            five seeds at once
  cramerl train s51 pong --print-config > pong.json       settings to look at and change, then
  cramerl train s51 pong --config pong.json

Ctrl-C stops with a checkpoint, and `cramerl resume RUN` goes on where it stopped. Exit status: 0 done, 1 the loss was
not finite any more (of several lanes: in all of them), 2 bad input, 130 stopped by Ctrl-C.
"""


def add_agent_commands(commands: Any) -> None:
    """Add train, resume, play and export to the command line."""
    _add_train(commands)
    resume = commands.add_parser(
        "resume",
        help="go on with a run from its last checkpoint",
        description="Go on with a run from its last good checkpoint. On the same machine the result is what it would "
        "have been without the interruption.",
    )
    resume.add_argument("folder", type=Path, metavar="RUN", help="folder of a run")
    resume.add_argument("--steps", metavar="N", help="a new total of agent steps, to make the run longer")
    resume.set_defaults(run=_resume)

    play = commands.add_parser(
        "play",
        help="let a trained agent play, and print its scores",
        description="Play whole episodes with a trained agent, without learning. Scores are in the game's own points.",
    )
    play.add_argument("folder", type=Path, metavar="RUN_OR_EXPORT", help="folder of a run, or one cramerl export wrote")
    add = play.add_argument
    _add_lane(add)
    add("--episodes", type=integer_from(1), default=5, metavar="N", help="how many (default: %(default)s)")
    add("--epsilon", type=_share, help="share of random actions (default: the run's eval_epsilon)")
    add("--seed", type=integer_from(0, 2**31 - 1), default=0, help="of environments and actions (default: %(default)s)")
    add("--json", action="store_true", help="print JSON instead")
    play.set_defaults(run=_play)

    export = commands.add_parser(
        "export",
        help="write a trained agent into a folder that can be shared",
        description="Write an agent's weights (safetensors), settings and model card. `cramerl play` and "
        "`cramerl.load_agent` read such a folder.",
    )
    export.add_argument("folder", type=Path, metavar="RUN", help="folder of a run")
    _add_lane(export.add_argument)
    export.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="a new or empty folder")
    export.set_defaults(run=_export)


def _add_lane(add: Callable[..., Any]) -> None:
    add(
        "--lane",
        type=integer_from(0),
        default=0,
        metavar="N",
        help="which lane of a run that has several, counted from 0 in the order of the lines of its log (default: "
        "%(default)s); evaluation within training is of lane 0",
    )


def integer_from(least: int, most: int | None = None) -> Callable[[str], int]:
    """A type of argument: integers from ``least`` to ``most``."""

    def integer(text: str) -> int:
        if not text.isdecimal() or int(text) < least or (most is not None and int(text) > most):
            end = "" if most is None else f" and <= {most}"
            raise argparse.ArgumentTypeError(f"must be an integer >= {least}{end}, got {text!r}")
        return int(text)

    return integer


def require_library(name: str, extra: str) -> None:
    """Say what to install before work is done that would be lost."""
    if importlib.util.find_spec(name) is None:
        raise ValueError(f"{name} is not installed; install cramerl with its extra: pip install 'cramerl[{extra}]'")


def show_progress(words: str) -> None:
    """A line that is written over, where a person watches."""
    if sys.stderr.isatty():
        print(f"\r{words}\033[K", end="", file=sys.stderr, flush=True)


def _add_train(commands: Any) -> None:
    presets = "\n".join(f"  {name:<12}{words}" for name, words in PRESETS.items())
    train = commands.add_parser(
        "train",
        help="train an agent",
        usage="cramerl train AGENT ENV [--preset NAME | --config FILE] [--out FOLDER] [--SETTING VALUE ...]",
        description="Train an agent. Every setting has a flag; what is not given is taken from the preset, which by "
        "default is the one\nthat fits the environment: --print-config shows what comes out. Counts of steps are the "
        "agent's decisions, over all\nparallel environments together. A switch such as --double-q is turned off by "
        "--no-double-q. A setting that\nagent or environment do not have, such as --mass-penalty for dqn, is refused."
        f"\n\npresets:\n{presets}",
        epilog=TRAIN_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,  # a new setting must not change what a flag in a script means
    )
    for setting in dataclasses.fields(TrainConfig):
        if setting.name in ("agent", "env"):
            train.add_argument(setting.name, metavar=setting.name.upper(), help=setting.metadata["help"])
    start = train.add_mutually_exclusive_group()
    start.add_argument("--preset", metavar="NAME", help="settings to start from, see above (default: fits ENV)")
    start.add_argument("--config", type=Path, metavar="FILE", help="start from a run's config.json instead of a preset")
    train.add_argument("--out", type=Path, metavar="FOLDER", help="new or empty (default: runs/ENV__AGENT__SEED__TIME)")
    train.add_argument("--print-config", action="store_true", help="print the settings as JSON and do not train")
    add_setting_flags(train, _NAMED)
    train.set_defaults(run=_train, flags=list(train._option_string_actions))


def add_setting_flags(parser: argparse.ArgumentParser, left_out: Collection[str]) -> None:
    """A flag for every setting but those left out, in groups; `setting_texts` finds those that were given."""
    # Python 3.11 takes -1e2 for a flag; -1,-2 are values of a sweep.
    parser._negative_number_matcher = re.compile(r"^-(\d+\.?\d*|\.\d+)(e[+-]?\d+)?(,.*)?$", re.IGNORECASE)
    groups, hints = {}, setting_types()
    for setting in dataclasses.fields(TrainConfig):
        if setting.name not in left_out:
            name = setting.metadata["group"]
            groups[name] = groups.get(name) or parser.add_argument_group(_GROUPS[name])
            words = f"{setting.metadata['help']} ({_bounds(setting.metadata['bounds'])}default: preset)"
            _add_setting(groups[name], setting.name, hints[setting.name], words)


def setting_texts(options: argparse.Namespace, left_out: Collection[str]) -> dict[str, str]:
    """The settings whose flags were given, as they were written."""
    names = [setting.name for setting in dataclasses.fields(TrainConfig) if setting.name not in left_out]
    return {name: getattr(options, name) for name in names if hasattr(options, name)}


def _add_setting(group: Any, name: str, hint: Any, words: str) -> None:
    """The flag of a setting. Its text is read later: what is wrong with it is a sentence, not a page of usage."""
    flag, words = name.replace("_", "-"), words.replace("%", "%%")
    if hint is bool:
        group.add_argument(f"--{flag}", nargs="?", const="true", metavar="BOOL", default=argparse.SUPPRESS, help=words)
        off = {"action": "store_const", "const": "false", "default": argparse.SUPPRESS}
        group.add_argument(f"--no-{flag}", dest=name, help=argparse.SUPPRESS, **off)
        return
    metavar = {int: "N", float: "X", str: "TEXT"}.get(hint, "N,N")
    if get_args(hint) and get_origin(hint) is not tuple:
        metavar = "{" + ",".join(get_args(hint)) + "}"
    group.add_argument(f"--{flag}", metavar=metavar, default=argparse.SUPPRESS, help=words)


def _bounds(bounds: dict[str, float]) -> str:
    signs = {"low": ">=", "above": ">", "high": "<="}
    words = [f"{signs[end]} {bounds[end]}" for end in signs if end in bounds]
    return f"{' and '.join(words)}; " if words else ""


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"must be a number in [0, 1], got {text!r}")
    return value


def _settings(options: argparse.Namespace) -> TrainConfig:
    """The settings a command line asks for."""
    changes = {name: parse_setting(name, text) for name, text in setting_texts(options, _NAMED).items()}
    if options.config is None:
        return preset(options.preset, options.agent, options.env, **changes)
    from cramerl.study.records import read_object

    try:
        config = read_object(options.config, TrainConfig.from_json)
    except OSError as error:
        raise ValueError(
            f"--config must be a file of settings, {options.config} cannot be read: {error.strerror}"
        ) from error
    if config.agent != options.agent:
        kept = "whose step size and the like would be kept: start from a preset instead"
        raise ValueError(f"AGENT must be {config.agent}, as in {options.config}, {kept}; got {options.agent}")
    require_concerned(changes, [config.agent])
    require_heeded(changes, [options.env])
    require_one_or_several(changes, config.to_json())
    return dataclasses.replace(config, agent=options.agent, env=options.env, **changes)


def require_deep_libraries(config: TrainConfig | None = None) -> None:
    """Say what to install before an agent is trained or played."""
    for name in _LIBRARIES:
        require_library(name, "deep")
    if config is not None and config.tensorboard:
        require_library("tensorboardX", "deep")
    if config is not None and config.track != "none":
        require_library(config.track, config.track)


def _train(options: argparse.Namespace) -> int:
    config = _settings(options)
    if options.print_config:
        print(json.dumps(config.to_json(), indent=2))
        return 0
    require_deep_libraries(config)
    from cramerl.study import training

    return _follow(lambda report: training.train(config, options.out, report=report))


def _resume(options: argparse.Namespace) -> int:
    from cramerl.study import agents, training

    steps = None if options.steps is None else parse_setting("steps", options.steps)
    config = agents.load_config(options.folder)
    require_deep_libraries(config)
    return _follow(lambda report: training.resume(options.folder, steps, report=report))


def _follow(work: Callable[[Report], Run]) -> int:
    """Do it with a progress display, and say how it ended."""
    from cramerl.study import progress, training

    seen: list[int] = []
    try:
        with progress.progress_display(sys.stderr) as show:

            def report(status: training.Status) -> None:
                seen.append(status.step)
                show(status)

            run = work(report)
    except training.Diverged as error:
        print(f"cramerl: {error}", file=sys.stderr)
        return 1
    if not run.finished:
        return _stopped(run)
    for line in _ending(run, done_before=seen[:1] == [run.step]):
        print(line)
    return 0


def _stopped(run: Run) -> int:
    from cramerl.study.records import RunFolder

    kept = RunFolder.open(run.folder).config.checkpoints
    words = f"to go on from its last checkpoint: cramerl resume {_quoted(run.folder)}"
    if kept != "full":
        words = f"{run.folder} cannot be resumed, for its checkpoints are {kept!r}"
    print(f"cramerl: stopped at step {run.step:,}; {words}", file=sys.stderr)
    return 130


def _ending(run: Run, *, done_before: bool) -> Iterator[str]:
    """What there is now, and what can be done with it."""
    from cramerl.study.records import RunFolder

    config, folder = RunFolder.open(run.folder).config, _quoted(run.folder)
    if done_before:
        yield f"the run was finished already, after {run.step:,} steps; --steps N makes it longer"
    else:
        yield f"trained {config.agent} on {config.env}: {run.step:,} steps"
    if not any(row.get("charts/updates") for row in run.rows):
        first = f"{config.min_replay_steps:,} steps (min_replay_steps)"
        yield f"it has not learned yet: no update is made in the first {first}"
    rows = [row for row in run.rows if row["step"] > 0.9 * run.step and "charts/episodic_return" in row]
    episodes = sum(row["charts/episodes"] for row in rows)
    if episodes:
        mean = sum(row["charts/episodes"] * row["charts/episodic_return"] for row in rows) / episodes
        yield f"mean return {mean:,.2f} in the last tenth of the log ({episodes:,} episodes, with random actions)"
    tested = [row for row in run.rows if "eval/episodic_return" in row]
    if tested:
        mean, episodes = tested[-1]["eval/episodic_return"], tested[-1]["eval/episodes"]
        yield f"mean return {mean:,.2f} in {episodes} evaluation episodes"
    yield f"the run is in {run.folder}"
    lanes = config.lane_settings
    if len(lanes) > 1:
        yield f"{len(lanes)} lanes were trained: {named_lanes(lanes)}; play and export take one, --lane N (0)"
    lost = lost_lanes(run.rows, lanes)
    if lost:
        them = "was lost, for its" if len(lost) == 1 else "were lost, for their"
        yield f"{len(lost)} of them {them} loss was not finite any more: {named_lanes(lanes, lost)}"
    if config.checkpoints != "none":
        yield f"to watch its scores: cramerl play {folder}"
        yield f"what it believes:    cramerl watch {folder}; with its curve on a page: cramerl report {folder}"
    if config.checkpoints == "full":
        yield f"to train it longer:  cramerl resume {folder} --steps {2 * config.steps}"


def _play(options: argparse.Namespace) -> int:
    from cramerl.study import agents, building

    config = agents.load_config(options.folder)
    require_deep_libraries()
    options.epsilon = config.eval_epsilon if options.epsilon is None else options.epsilon
    from cramerl.deep.agent import play_episodes

    show_progress("loading ...")
    agent = agents.load_agent(options.folder, lane=options.lane)
    envs = building.make_envs(config, min(options.episodes, 16))
    try:
        watch = _counter(options.episodes)
        played = play_episodes(
            agent, envs, options.episodes, epsilon=options.epsilon, seed=options.seed, watch=lambda *step: watch(step)
        )
    finally:
        envs.close()
        show_progress("")
    _print_episodes(options, config, played)
    return 0


def _counter(episodes: int) -> Callable[[Any], None]:
    """Counts steps and episodes where a person watches."""
    steps = ended = 0

    def watch(step: Any) -> None:
        nonlocal steps, ended
        steps, ended = steps + 1, ended + int(step[2].ended.sum())
        if steps % 100 == 0:
            show_progress(f"{steps:,} steps in each environment, {min(ended, episodes)} of {episodes} episodes ended")

    return watch


def _print_episodes(options: argparse.Namespace, config: TrainConfig, played: list[Episode]) -> None:
    scores = [episode.score for episode in played]
    mean = sum(scores) / len(scores)
    error = None
    if len(scores) > 1:
        error = math.sqrt(sum((score - mean) ** 2 for score in scores) / (len(scores) - 1) / len(scores))
    if options.json:
        record = {"agent": config.agent, "env": config.env, "epsilon": options.epsilon, "seed": options.seed}
        record |= {"lane": options.lane}
        record |= {"episodes": [episode._asdict() for episode in played], "mean": mean, "standard_error": error}
        print(json.dumps(record, indent=2))
        return
    for number, episode in enumerate(played, start=1):
        print(f"episode {number:>3}   score {episode.score:>10,.2f}   {episode.length:>7,} steps")
    spread = f" ± {error:,.2f} (standard error)" if error is not None else " (one episode)"
    print(f"mean score {mean:,.2f}{spread}: {config.agent} on {config.env}")


def _export(options: argparse.Namespace) -> int:
    from cramerl.study import agents

    require_deep_libraries()
    for path in agents.export_agent(options.folder, options.out, lane=options.lane):
        print(f"wrote {path}")
    return 0


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))
