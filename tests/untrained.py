"""Runs with initial weights, for tests of what is done with a run: training them would take most of the time."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
from lenient import lenient

from cramerl.deep.checkpoint import CheckpointStore
from cramerl.deep.trees import flatten
from cramerl.runs import build
from cramerl.runs.config import TrainConfig
from cramerl.runs.folder import RunFolder
from cramerl.runs.group import as_group
from cramerl.runs.presets import preset


def small_config(agent: str = "s51", env: str = "CartPole-v1", **changes: object) -> TrainConfig:
    """Settings of a small agent."""
    atoms = {} if agent == "dqn" else {"num_atoms": 11}
    support = {} if agent in ("dqn", "qr") else {"v_min": -10.0, "v_max": 10.0}
    return preset("smoke", agent, env, hidden_units=(8,), **{**atoms, **support, **changes})


def write_untrained(folder: Path, *configs: TrainConfig) -> Path:
    """Write a run, or a group of several, as if it had saved a checkpoint before its first step."""
    group = as_group(configs)
    with lenient():
        envs = build.make_envs(group.first, 1)
        learner = build.make_learner(group.first, envs.spec)
        params = [learner.init(jax.random.key(config.seed)).params for config in configs]
        envs.close()
    RunFolder.create(group, envs.spec, folder)
    weights = params[0] if len(params) == 1 else jax.tree.map(lambda *each: np.stack(each), *params)
    CheckpointStore(folder / "checkpoints").save(
        {"iteration": 0, "step": 0, "diverged": []}, flatten({"params": weights})
    )
    return folder
