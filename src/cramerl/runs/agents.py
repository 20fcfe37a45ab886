"""Trained agents as files: from a run, to an export with a model card, and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cramerl._files import write_text, write_whole
from cramerl.runs import build
from cramerl.runs.config import TrainConfig
from cramerl.runs.lanes import named_lanes, of_lane
from cramerl.runs.folder import CONFIG, EXPORTED_WEIGHTS, RunFolder

if TYPE_CHECKING:
    from cramerl.deep.agent import Agent
    from cramerl.deep.envs.base import EnvSpec

CARD = "README.md"


def load_agent(path: str | Path, *, lane: int = 0) -> Agent:
    """A trained agent, from the folder of a run (its last checkpoint) or of an export.

    Args:
        path: the folder.
        lane: which, counted from 0, where a run has several (see ``TrainConfig.lane_settings``).

    Example:
        >>> agent = load_agent("runs/my-run")  # doctest: +SKIP
        >>> atoms, masses = agent.distributions(observations)  # doctest: +SKIP
    """
    import jax

    from cramerl.deep.trees import unflatten

    config, spec, weights = _read(Path(path), lane)
    shapes = jax.eval_shape(build.make_learner(config, spec).network.init, jax.random.key(0))
    return build.make_agent(config, spec, unflatten(shapes, weights, f"weights of {path}"))


def read_weights(path: str | Path, like: Any) -> Any:
    """Weights of a run (its first lane) or an export for a network with parameters ``like``."""
    from cramerl.deep.trees import unflatten

    _, _, weights = _read(Path(path), 0)
    return unflatten(like, weights, f"weights of {path}")


def export_agent(run: str | Path, out: str | Path, *, lane: int = 0) -> list[Path]:
    """Write an agent's weights, settings and model card into a folder that can be shared.

    Args:
        run: the folder of a run.
        out: a new or empty folder.
        lane: which, counted from 0, where the run has several; the settings written are those of this lane alone.

    Returns:
        The files.
    """
    import safetensors.numpy

    out = Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"out must be a new or empty folder, got {out}")
    config, spec, weights = _read(Path(run), lane)
    record = {"cramerl-agent": "1", "config": json.dumps(config.to_json()), "environment": json.dumps(spec._asdict())}
    data = safetensors.numpy.save(weights, metadata=record)
    card = _card(config, spec, weights, _result(Path(run), config))  # before anything is written
    written = [write_whole(out / EXPORTED_WEIGHTS, lambda temporary: temporary.write_bytes(data))]
    written.append(write_text(out / CONFIG, json.dumps(config.to_json(), indent=2) + "\n"))
    written.append(write_text(out / CARD, card))
    return written


def _read(path: Path, lane: int) -> tuple[TrainConfig, EnvSpec, dict[str, np.ndarray]]:
    """Settings of one lane alone, environment and weights."""
    if not (path / EXPORTED_WEIGHTS).is_file():
        return _read_run(path, lane)
    if lane != 0:
        raise ValueError(f"lane must be 0 for an export, which holds one agent, got {lane!r}")
    return _read_export(path)


def _read_run(path: Path, lane: int) -> tuple[TrainConfig, EnvSpec, dict[str, np.ndarray]]:
    from cramerl.deep.checkpoint import CheckpointStore
    from cramerl.deep.trees import weights_of

    folder = RunFolder.open(path)
    config, lanes = folder.config, folder.config.lane_settings
    if isinstance(lane, bool) or not isinstance(lane, int) or not 0 <= lane < len(lanes):
        raise ValueError(f"lane must be one of {named_lanes(lanes)} in {path}, got {lane!r}")
    saved = CheckpointStore(folder.path / "checkpoints").latest()
    if saved is None:
        raise ValueError(
            f"{path} has no checkpoint: none has been written yet, or it is in "
            "the storage of a sweep on Ray (cramerl sweep ... --pull all brings it)"
        )
    lost = saved.info.get("lost", ())
    if lane in lost:
        left = named_lanes(lanes, [number for number in range(len(lanes)) if number not in lost])
        raise ValueError(f"lane must be one of {left} in {path}, got {lane}, which was lost: its loss was not finite")
    weights = weights_of(saved.arrays)
    if len(lanes) > 1:
        weights = {name: np.ascontiguousarray(array[lane]) for name, array in weights.items()}
    return config.single_runs()[lane], folder.spec, weights


def _read_export(path: Path) -> tuple[TrainConfig, EnvSpec, dict[str, np.ndarray]]:
    import safetensors

    from cramerl.deep.envs.base import spec_from_json

    file = path / EXPORTED_WEIGHTS
    try:
        with safetensors.safe_open(file, framework="numpy") as tensors:
            record = tensors.metadata() or {}
            weights = {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118 - not a dictionary
        config, environment = json.loads(record["config"]), json.loads(record["environment"])
        return TrainConfig.from_json(config), spec_from_json(environment), weights
    except (safetensors.SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{file} cannot be used: {error}") from error


def _result(run: Path, config: TrainConfig) -> str:
    """Mean return of the episodes in the last tenth of the run, of the lane whose weights are exported."""
    lane = {name: getattr(config, name) for name in ("mass_penalty", "learning_rate", "seed")}
    rows = [row for row in RunFolder(run).metrics() if row.get("charts/episodes") and of_lane(row, lane)]
    last = [row for row in rows if row["step"] > 0.9 * rows[-1]["step"]]
    if not last:
        return "not recorded"
    episodes = sum(row["charts/episodes"] for row in last)
    mean = sum(row["charts/episodes"] * row["charts/episodic_return"] for row in last) / episodes
    return f"{mean:.2f} (training episodes, last tenth of {rows[-1]['step']:,} steps)"


def _card(config: TrainConfig, spec: EnvSpec, weights: dict[str, np.ndarray], result: str) -> str:
    """A model card as hubs read it: YAML, then what it is, how it was made, how to use it."""
    count = sum(array.size for array in weights.values())
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
atoms, masses = agent.distributions(observations)  # (N, actions, atoms): the predicted distribution of the return
actions = agent.act(observations)
```

`cramerl play path/to/this/folder` plays it. Limits: trained on this environment and these settings only; masses of s51
and u51 may be negative; one seed says little about an algorithm.

## Settings
| setting | value |
|---|---|
{settings}
"""
