"""Trained agents as files: from a run, to an export with a model card, and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import safetensors
import safetensors.numpy

from cramerl._files import write_json, write_text, write_whole
from cramerl.deep.agent import Agent
from cramerl.deep.checkpoint import CheckpointStore
from cramerl.deep.envs.base import EnvSpec, spec_from_json
from cramerl.deep.trees import unflatten, weights_of
from cramerl.runs import build
from cramerl.runs.config import TrainConfig
from cramerl.runs.folder import CONFIG, EXPORTED_WEIGHTS, RunFolder, load_config, run_folders
from cramerl.runs.group import RunGroup
from cramerl.runs.scores import tail_score
from cramerl.runs.trainer import Run

CARD = "README.md"
_EXPORT_FORMAT = "2"


def load_agent(path: str | Path | Run, *, lane: int = 0) -> Agent:
    """A trained agent, from the folder of a run (its last checkpoint) or of an export.

    Args:
        path: the folder, or what `cramerl.train` returned.
        lane: which run of a group, counted from 0.

    Example:
        >>> agent = load_agent("runs/my-run")  # doctest: +SKIP
        >>> atoms, masses = agent.distributions(observations)  # doctest: +SKIP
    """
    path = run_folders(path)[0]
    config, spec, weights = _read(path, lane)
    learner = build.make_learner(config, spec)
    shapes = jax.eval_shape(lambda key: learner.init(key).params, jax.random.key(0))
    return build.make_agent(config, spec, unflatten(shapes, weights, f"weights of {path}"))


def read_weights(path: str | Path, like: Any) -> Any:
    """Weights of a run (the first of a group) or an export, for a network with parameters ``like``."""
    _, _, weights = _read(Path(path), 0)
    return unflatten(like, weights, f"weights of {path}")


def export_agent(run: str | Path | Run, out: str | Path, *, lane: int = 0) -> list[Path]:
    """Write an agent's weights, settings and model card into a folder that can be shared.

    Args:
        run: the folder of a run, or what `cramerl.train` returned.
        out: a new or empty folder.
        lane: which run of a group, counted from 0.

    Returns:
        The files.
    """
    run, out = run_folders(run)[0], Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"out must be a new or empty folder, got {out}")
    config, spec, weights = _read(run, lane)
    record = {
        "cramerl-agent": _EXPORT_FORMAT,
        "config": json.dumps(config.to_json()),
        "environment": json.dumps(spec._asdict()),
    }
    data = safetensors.numpy.save(weights, metadata=record)
    card = _card(config, spec, weights, _result(run, config))  # before anything is written
    written = [write_whole(out / EXPORTED_WEIGHTS, lambda temporary: temporary.write_bytes(data))]
    return [*written, write_json(out / CONFIG, config.to_json()), write_text(out / CARD, card)]


def _read(path: Path, lane: int) -> tuple[TrainConfig, EnvSpec, dict[str, np.ndarray]]:
    """Settings, environment and weights of one run."""
    return _read_export(path, lane) if (path / EXPORTED_WEIGHTS).is_file() else _read_run(path, lane)


def _read_run(path: Path, lane: int) -> tuple[TrainConfig, EnvSpec, dict[str, np.ndarray]]:
    folder, config = RunFolder.open(path), load_config(path, lane)
    saved = CheckpointStore(path / "checkpoints").latest()
    if saved is None:
        raise ValueError(
            f"{path} has no checkpoint, so there are no weights to load: none has been written yet, they were removed, "
            "or they are in the storage of a sweep on Ray (cramerl sweep ... --download all copies them here)"
        )
    group, diverged = folder.group, saved.info["diverged"]
    if lane in diverged:
        left = group.describe([number for number in range(len(group)) if number not in diverged])
        raise ValueError(f"lane must be one of {left} in {path}, got {lane}, which diverged: its loss was not finite")
    weights = weights_of(saved.arrays)
    if len(group) > 1:
        weights = {name: np.array(array[lane]) for name, array in weights.items()}
    return config, folder.spec, weights


def _read_export(path: Path, lane: int) -> tuple[TrainConfig, EnvSpec, dict[str, np.ndarray]]:
    if lane != 0:
        raise ValueError(f"lane must be 0 for an export, which holds one agent, got {lane!r}")
    file = path / EXPORTED_WEIGHTS
    try:
        with safetensors.safe_open(file, framework="numpy") as tensors:
            record = tensors.metadata() or {}
            weights = {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118 - not a dictionary
        if record.get("cramerl-agent") != _EXPORT_FORMAT:
            raise ValueError(f"it has format {record.get('cramerl-agent')}, this version reads {_EXPORT_FORMAT}")
        config, environment = json.loads(record["config"]), json.loads(record["environment"])
        return RunGroup.from_json(config).first, spec_from_json(environment), weights
    except (safetensors.SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{file} cannot be used: {error}") from error


def _result(run: Path, config: TrainConfig) -> str:
    """The score of the run whose weights are exported."""
    folder = RunFolder(run)  # not opened: an export, which can be exported again, has no log
    lane = folder.group.configs.index(config)
    rows = [row for row in folder.metrics() if folder.group.lane_of(row) == lane]
    mean, episodes = tail_score(rows)
    return f"{mean:.2f} (training episodes, last fifth of {rows[-1]['step']:,} steps)" if episodes else "not recorded"


def _card(config: TrainConfig, spec: EnvSpec, weights: dict[str, np.ndarray], result: str) -> str:
    """A model card as hubs read it: YAML, then what it is, how it was made, how to use it."""
    count = sum(array.size for name, array in weights.items() if not name.startswith("support."))
    settings = "\n".join(f"| {name} | {value} |" for name, value in config.to_json().items())
    return f"""---
library_name: cramerl
tags: [reinforcement-learning, distributional, {config.agent}, {config.env.replace("/", "-")}]
---
# {config.agent} on {config.env}

| | |
|---|---|
| agent | {config.agent} |
| environment | {config.env} ({spec.family}, {spec.num_actions} actions, observations {spec.observation_shape}) |
| parameters | {count:,} |
| seed | {config.seed} |
| mean return | {result} |

```python
import cramerl
agent = cramerl.load_agent("path/to/this/folder")
atoms, masses = agent.distributions(observations)  # (N, actions, atoms): predicted distributions of the return
actions = agent.act(observations)
```

`cramerl play path/to/this/folder` plays it. Limits: trained on this environment and these settings only; masses of s51,
u51 and l51 may be negative; one seed says little about an algorithm.

## Settings
| setting | value |
|---|---|
{settings}
"""
