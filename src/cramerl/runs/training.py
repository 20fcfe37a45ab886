"""Train an agent, or continue a run: the functions `cramerl.train` and `cramerl.resume`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from cramerl.deep.loop import Loop
from cramerl.runs import build, loggers
from cramerl.runs.agents import read_weights
from cramerl.runs.config import (
    LANE_SETTINGS,
    TrainConfig,
    agent_name,
    applies_to_agent,
    require_agent_settings,
    without_aliases,
)
from cramerl.runs.folder import RunFolder, load_config, run_folders
from cramerl.runs.group import RunGroup, as_group
from cramerl.runs.names import initial_folder
from cramerl.runs.presets import preset as make_preset
from cramerl.runs.progress import is_interactive, progress_display, progress_stream
from cramerl.runs.trainer import AfterCheckpoint, OnProgress, Run, Trainer


def train(
    agent: str | TrainConfig | Sequence[TrainConfig] | RunGroup,
    env: str | PathLike[str] | None = None,
    *,
    preset: str | None = None,
    out: str | Path | None = None,
    progress: bool | None = None,
    on_progress: OnProgress | None = None,
    after_checkpoint: AfterCheckpoint | None = None,
    **settings: Any,
) -> Run:
    """Train an agent, or several at once in one compiled program.

    Args:
        agent: an agent's name, such as "s51"; or whole settings: a config of `cramerl.preset`, several of them, or a
            `RunGroup`. Several configs may differ only in seed, learning rate and mass penalty, and need a gymnax
            environment.
        env: the environment's name, see `TrainConfig.env`. With whole settings it may be a path: the same as ``out``.
        preset: where settings start that are not given, see `cramerl.preset`; None: the preset that fits ``env``.
        out: the run's folder, new or empty; by default ``runs/ENV__AGENT__SEED__TIME``.
        progress: whether to show the progress; None: in notebooks and interactive sessions, if ``on_progress`` is None.
        on_progress: called with a `Status` after each log line.
        after_checkpoint: called with the run's folder after each checkpoint; training waits for it.
        settings: of an agent given by its name, such as ``steps=50_000``. A list of seeds, learning rates or mass
            penalties trains a run for each combination.

    Returns:
        Where the run is and what it logged. Ctrl-C stops it with a checkpoint; ``finished`` is then False.

    Raises:
        Diverged: the loss or the weights of every run are no longer finite; the last good checkpoint is kept. While
            other runs of a group continue, one that diverged gets a last log line with ``"diverged": true``.

    Example:
        >>> import cramerl
        >>> run = cramerl.train("s51", "CartPole-v1", steps=50_000, seed=range(5))  # doctest: +SKIP
        >>> config = cramerl.preset("minatar", "s51", "Breakout-MinAtar", steps=1_000_000)
        >>> run = cramerl.train(config)  # doctest: +SKIP
    """
    if not isinstance(agent, str) and isinstance(env, PathLike) and out is None:
        env, out = None, Path(env)
    group = _asked_group(agent, env, preset, settings)
    config = group.first
    loggers.require_loggers(config)
    # Before the folder: settings that cannot be built leave nothing behind.
    with _shown(progress, on_progress) as on_progress, closing(build.make_loop(group, trust_modules=True)) as loop:
        if config.initial_weights:
            _start_from_weights(config, loop)
        folder = RunFolder.create(group, loop.spec, None if out is None else Path(out))
        with folder.locked():
            trainer = Trainer(group, folder, loop, on_progress, after_checkpoint)
            trainer.message = _headline(config, loop, folder.path)
            return trainer.run()


def resume(
    run: str | Path | Run,
    steps: int | None = None,
    *,
    progress: bool | None = None,
    on_progress: OnProgress | None = None,
    after_checkpoint: AfterCheckpoint | None = None,
    trust_modules: bool = False,
) -> Run:
    """Continue a run from its last good checkpoint; on the same machine the result is that of an uninterrupted run.

    Args:
        run: the folder of a run or a group, or what `train` returned.
        steps: a new total of agent steps, to make the run longer.
        progress: see `train`.
        on_progress: see `train`.
        after_checkpoint: see `train`.
        trust_modules: whether the folder may name a module to import, as in "MODULE:Env-v0"; only if you trust it.
    """
    folder = RunFolder.open(run_folders(run)[0])
    group = folder.group
    config = group.first
    if config.checkpoints != "full":
        raise ValueError(
            f"run must have been trained with checkpoints 'full', {folder.path} has {config.checkpoints!r}"
        )
    if steps is not None:
        group = group.replace(steps=steps)
    with (
        _shown(progress, on_progress) as on_progress,
        closing(build.make_loop(group, trust_modules=trust_modules)) as loop,
        folder.locked(),
    ):
        trainer = Trainer(group, folder, loop, on_progress, after_checkpoint)
        if not _restored(trainer) and config.initial_weights:
            _start_from_weights(config, loop)
        if loop.schedule.blocks(group.first.steps) < loop.block:
            raise ValueError(f"steps must be at least {trainer.step}, which the run has done, got {steps}")
        if steps is not None:
            folder.change_group(group)
        return trainer.run()


def _restored(trainer: Trainer) -> bool:
    """Load the last checkpoint; ValueError for one that says what no run says, though its sums are right."""
    try:
        return trainer.restore()
    except (LookupError, TypeError, AttributeError, ArithmeticError) as error:
        what = f"{type(error).__name__}: {error}"
        raise ValueError(
            f"{trainer.folder.path} cannot be resumed, its checkpoint has been altered ({what})"
        ) from error


def _asked_group(agent: Any, env: Any, preset: str | None, settings: dict[str, Any]) -> RunGroup:
    """The runs that the arguments of `train` describe."""
    if not isinstance(agent, str):
        given = {"env": env, "preset": preset} | settings
        for name in [name for name, value in given.items() if value is not None]:
            raise ValueError(
                f"{name} must not be given with whole settings, got {given[name]!r}; change them with "
                "dataclasses.replace, and name the folder with out="
            )
        return as_group(agent)
    if env is None:
        raise ValueError(f"env must be the name of an environment, because agent is the name {agent!r}, got None")
    settings = without_aliases(settings)
    lanes = {name: list(settings[name]) for name in LANE_SETTINGS if _is_several(settings.get(name))}
    require_agent_settings(lanes, [agent_name(agent)])
    for name, values in lanes.items():
        if not values:
            raise ValueError(f"{name} must be one value or more, got none")
    single = {name: value for name, value in settings.items() if name not in lanes}
    return RunGroup.of(make_preset(preset, agent, env, **single), **lanes)


def _is_several(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes))


@contextmanager
def _shown(progress: bool | None, on_progress: OnProgress | None) -> Iterator[OnProgress | None]:
    """What is called with the progress: the caller's function, a display, or nothing."""
    if progress and on_progress is not None:
        raise ValueError("progress must not be True with on_progress, which shows the progress itself")
    if on_progress is not None or not (is_interactive() if progress is None else progress):
        yield on_progress
        return
    with progress_display(progress_stream()) as show:
        yield show


def _start_from_weights(config: TrainConfig, loop: Loop) -> None:
    """Start from initial weights; what was given must say the same of their outputs."""
    weights = read_weights(config.initial_weights, loop.params)
    if config.v_min is not None and "support" in weights:
        given, theirs = (
            [float(params["support"]["low"]), float(params["support"]["spacing"])] for params in (loop.params, weights)
        )
        if not np.allclose(given, theirs, rtol=1e-5, atol=1e-5 * given[1]):
            low, high = theirs[0], theirs[0] + theirs[1] * (config.num_atoms - 1)
            raise ValueError(
                f"v_min and v_max must be those of initial_weights, [{low:g}, {high:g}], or none, got "
                f"[{config.v_min:g}, {config.v_max:g}]"
            )
    if applies_to_agent("mode_exponent", config.agent):
        _require_same_modes(config)
    loop.set_params(weights)


def _require_same_modes(config: TrainConfig) -> None:
    theirs = load_config(initial_folder(config.initial_weights)).mode_exponent
    if config.mode_exponent != theirs:
        raise ValueError(
            f"mode_exponent must be that of initial_weights, {theirs:g}, because their outputs are in those units, got "
            f"{config.mode_exponent:g}"
        )


def _headline(config: TrainConfig, loop: Loop, folder: Path) -> str:
    family = loop.spec.family
    kind = {"gymnax": "gymnax", "atari": "Atari", "gymnasium": "Gymnasium"}[family]
    size = f"{config.steps:,} steps, {config.num_envs} environments"
    if family != "gymnax" and config.resets_environments:  # an iteration bounds the length of an episode
        size += f", reset every {config.iteration_steps // config.num_envs:,} steps"
    text = (
        f"{config.agent} on {config.env} ({kind}, preset {config.preset or 'none'}): {size}, into {folder}; compiling"
    )
    if loop.schedule.blocks(config.steps) <= loop.schedule.first_learning_block:
        text += (
            f"; it will not learn: no update is made in the first {config.min_replay_steps:,} steps (min_replay_steps)"
        )
    return text
