"""Train an agent, or continue a run: the functions `cramerl.train` and `cramerl.resume`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from cramerl.deep.loop import Loop
from cramerl.runs import build, loggers
from cramerl.runs.agents import read_weights
from cramerl.runs.config import TrainConfig
from cramerl.runs.folder import RunFolder
from cramerl.runs.group import RunGroup, as_group
from cramerl.runs.trainer import AfterCheckpoint, OnProgress, Run, Trainer


def train(
    runs: TrainConfig | Sequence[TrainConfig] | RunGroup,
    out: str | Path | None = None,
    *,
    on_progress: OnProgress | None = None,
    after_checkpoint: AfterCheckpoint | None = None,
) -> Run:
    """Train an agent, or several at once in one compiled program.

    Args:
        runs: the settings, see `cramerl.preset` and `cramerl.TrainConfig`. Several configs may differ only in seed,
            learning rate and mass penalty, and need a gymnax environment.
        out: the run's folder, new or empty; by default ``runs/ENV__AGENT__SEED__TIME``.
        on_progress: called with a `Status` after each log line.
        after_checkpoint: called with the run's folder after each checkpoint; training waits for it.

    Returns:
        Where the run is and what it logged. Ctrl-C stops it with a checkpoint; ``finished`` is then False.

    Raises:
        Diverged: the loss or the weights of every run are no longer finite; the last good checkpoint is kept. While
            other runs of a group continue, one that diverged gets a last log line with ``"diverged": true``.

    Example:
        >>> import cramerl
        >>> config = cramerl.preset("minatar", "s51", "Breakout-MinAtar", steps=1_000_000)
        >>> run = cramerl.train(config)  # doctest: +SKIP
    """
    group = as_group(runs)
    config = group.first
    loggers.require_loggers(config)
    # Before the folder: settings that cannot be built leave nothing behind.
    with closing(build.make_loop(group)) as loop:
        if config.initial_weights:
            _start_from_weights(config, loop)
        folder = RunFolder.create(group, loop.spec, None if out is None else Path(out))
        with folder.locked():
            trainer = Trainer(group, folder, loop, on_progress, after_checkpoint)
            trainer.message = _headline(config, loop.spec.family, folder.path)
            return trainer.run()


def resume(
    run: str | Path,
    steps: int | None = None,
    *,
    on_progress: OnProgress | None = None,
    after_checkpoint: AfterCheckpoint | None = None,
) -> Run:
    """Continue a run from its last good checkpoint; on the same machine the result is that of an uninterrupted run.

    Args:
        run: the folder of a run or a group.
        steps: a new total of agent steps, to make the run longer.
        on_progress: see `train`.
        after_checkpoint: see `train`.
    """
    folder = RunFolder.open(Path(run))
    group = folder.group
    config = group.first
    if config.checkpoints != "full":
        raise ValueError(f"run must have been trained with checkpoints 'full', {run} has {config.checkpoints!r}")
    if steps is not None:
        group = group.replace(steps=steps)
    with closing(build.make_loop(group)) as loop, folder.locked():
        trainer = Trainer(group, folder, loop, on_progress, after_checkpoint)
        if not trainer.restore() and config.initial_weights:
            _start_from_weights(config, loop)
        if loop.schedule.blocks(group.first.steps) < loop.block:
            raise ValueError(f"steps must be at least {trainer.step}, which the run has done, got {steps}")
        if steps is not None:
            folder.change_group(group)
        return trainer.run()


def _start_from_weights(config: TrainConfig, loop: Loop) -> None:
    """Start from initial weights; their support comes with them, so one that was given must be the same."""
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
    loop.set_params(weights)


def _headline(config: TrainConfig, family: str, folder: Path) -> str:
    kind = {"gymnax": "gymnax", "atari": "Atari", "gymnasium": "Gymnasium"}[family]
    size = f"{config.steps:,} steps, {config.num_envs} environments"
    if family != "gymnax" and config.resets_environments:  # an iteration bounds the length of an episode
        size += f", reset every {config.iteration_steps // config.num_envs:,} steps"
    return (
        f"{config.agent} on {config.env} ({kind}, preset {config.preset or 'none'}): {size}, into {folder}; compiling"
    )
