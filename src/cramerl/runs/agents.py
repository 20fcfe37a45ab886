"""Trained agents as files: from a run, to an export with a model card, and back."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import safetensors
import safetensors.numpy

from cramerl._files import write_json, write_text, write_whole
from cramerl._folders import ARRAY_BYTES, parse_json, read_inside
from cramerl.deep.agent import Agent
from cramerl.deep.checkpoint import CheckpointStore
from cramerl.deep.envs.base import EnvSpec, spec_from_json
from cramerl.deep.trees import unflatten, weights_of
from cramerl.runs import build, hub
from cramerl.runs.config import TrainConfig
from cramerl.runs.folder import CONFIG, EXPORTED_WEIGHTS, RunFolder, load_config
from cramerl.runs.group import RunGroup
from cramerl.runs.names import agent_folder, initial_folder
from cramerl.runs.scores import tail_in_words, tail_score
from cramerl.runs.trainer import Run

CARD = "README.md"
_EXPORT_FORMAT = "2"


class Loaded(NamedTuple):
    """What a folder holds of a trained agent.

    Attributes:
        config: the settings.
        spec: the environment.
        weights: by name.
        step: agent steps after which the run had these weights; None for an export, which does not say.
        note: a sentence if the run had newer weights, which cannot be used.
    """

    config: TrainConfig
    spec: EnvSpec
    weights: dict[str, np.ndarray]
    step: int | None = None
    note: str | None = None

    def agent(self, path: str | Path) -> Agent:
        """The agent; ``path`` is the folder, for messages."""
        learner = build.make_learner(self.config, self.spec)
        shapes = jax.eval_shape(lambda key: learner.init(key).params, jax.random.key(0))
        return build.make_agent(self.config, self.spec, unflatten(shapes, self.weights, f"weights of {path}"))


def load_agent(path: str | Path | Run, *, lane: int = 0) -> Agent:
    """A trained agent, from the folder of a run (its last checkpoint) or of an export, or by its name.

    Args:
        path: the folder, or what `cramerl.train` returned; or the name of an agent that comes with the package, as in
            "breakout/l51" ("breakout" alone is that too); or "hf://USER/NAME", a repository of the Hugging Face Hub.
        lane: which run of a group, counted from 0.

    Example:
        >>> agent = load_agent("breakout/l51")  # doctest: +SKIP
        >>> atoms, masses = agent.distributions(observations)  # doctest: +SKIP
    """
    path = agent_folder(path)
    return _warned(load(path, lane)).agent(path)


def read_weights(path: str | Path, like: Any) -> Any:
    """Weights of a run (the first of a group) or an export, for a network with parameters ``like``."""
    return unflatten(like, _warned(load(initial_folder(path), 0)).weights, f"weights of {path}")


def export_agent(
    run: str | Path | Run, out: str | Path, *, lane: int = 0, half: bool = False, push: str | None = None
) -> list[Path]:
    """Write an agent's weights, settings and model card into a folder that can be shared.

    Args:
        run: the folder of a run, what `cramerl.train` returned, or a name, see `load_agent`.
        out: a new or empty folder.
        lane: which run of a group, counted from 0.
        half: whether to write the weights of the network as 16-bit numbers. The file is half as large, and predictions
            change in the fourth digit. The support keeps its 32 bits.
        push: "USER/NAME", a repository of models on the Hugging Face Hub to which the files are then uploaded.

    Returns:
        The files.
    """
    run, out, place = agent_folder(run), Path(out), None if push is None else hub.parse_push(push)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"out must be a new or empty folder, got {out}")
    if place:
        hub.require_token(place)
    loaded = _warned(load(run, lane))
    config, spec, weights = loaded.config, loaded.spec, loaded.weights
    if half:
        weights = {name: _halved(name, array) for name, array in weights.items()}
    record = {
        "cramerl-agent": _EXPORT_FORMAT,
        "config": json.dumps(config.to_json()),
        "environment": json.dumps(spec._asdict()),
    }
    data = _packed(weights, record)
    card = _card(loaded, _result(run, loaded), str(place or "path/to/this/folder"))  # before anything is written
    written = [write_whole(out / EXPORTED_WEIGHTS, lambda temporary: temporary.write_bytes(data))]
    written += [write_json(out / CONFIG, config.to_json()), write_text(out / CARD, card)]
    if place:
        hub.upload(out, place)
    return written


def load(path: Path, lane: int) -> Loaded:
    """What a folder, of a run or an export, holds of one agent. The caller says the note."""
    if (path / EXPORTED_WEIGHTS).is_file():
        return _read_export(path, lane)
    try:
        return _read_run(path, lane)
    except (LookupError, TypeError, AttributeError, ArithmeticError) as error:
        what = f"{type(error).__name__}: {error}"
        raise ValueError(f"{path} cannot be used, its checkpoint has been altered ({what})") from error


def _warned(loaded: Loaded) -> Loaded:
    if loaded.note is not None:
        warnings.warn(loaded.note, stacklevel=3)
    return loaded


def _read_run(path: Path, lane: int) -> Loaded:
    folder, config = RunFolder.open(path), load_config(path, lane)
    store = CheckpointStore(path / "checkpoints")
    saved = store.latest()
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
    step, note = saved.info["step"], None
    if store.problems:
        note = f"the weights of {path} are those of step {step:,}, and not its newest: {'; '.join(store.problems)}"
    return Loaded(config, folder.spec, weights, step, note)


def _read_export(path: Path, lane: int) -> Loaded:
    if lane != 0:
        raise ValueError(f"lane must be 0 for an export, which holds one agent, got {lane!r}")
    file = path / EXPORTED_WEIGHTS
    try:
        data = read_inside(path, EXPORTED_WEIGHTS, most=ARRAY_BYTES)
        weights = {
            name: array.astype(np.float32) if array.dtype == np.float16 else array
            for name, array in safetensors.numpy.load(data).items()
        }
        record = _header(data).get("__metadata__", {})
        if record.get("cramerl-agent") != _EXPORT_FORMAT:
            raise ValueError(f"it has format {record.get('cramerl-agent')}, this version reads {_EXPORT_FORMAT}")
        config, environment = parse_json(record["config"]), parse_json(record["environment"])
        return Loaded(RunGroup.from_json(config).first, spec_from_json(environment), weights)
    except (safetensors.SafetensorError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{file} cannot be used: {error}") from error


def _halved(name: str, array: np.ndarray) -> np.ndarray:
    """A network's weights in 16 bits; ValueError if they do not fit."""
    if name.startswith("support.") or array.dtype != np.float32:
        return array
    if np.abs(array).max(initial=0.0) > np.finfo(np.float16).max:
        raise ValueError(f"half must be false: {name} has weights beyond what 16 bits can hold")
    return array.astype(np.float16)


def _packed(weights: dict[str, np.ndarray], record: dict[str, str]) -> bytes:
    """A file of weights. Its header is sorted, which safetensors leaves to chance: the same agent, the same bytes."""
    data = safetensors.numpy.save(weights, metadata=record)
    size = int.from_bytes(data[:8], "little")
    header = json.dumps(_header(data), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)  # safetensors aligns the arrays
    return len(header).to_bytes(8, "little") + header + data[8 + size :]


def _header(data: bytes) -> dict[str, Any]:
    """The JSON at the beginning of a file that safetensors can read."""
    return parse_json(data[8 : 8 + int.from_bytes(data[:8], "little")])


def _result(run: Path, loaded: Loaded) -> str:
    """The score of the run whose weights are exported, when it had these weights."""
    folder = RunFolder(run)  # not opened: an export, which can be exported again, has no log
    lane = folder.group.configs.index(loaded.config)
    rows = [row for row in folder.metrics() if folder.group.lane_of(row) == lane]
    rows = [row for row in rows if loaded.step is None or row["step"] <= loaded.step]
    mean, episodes = tail_score(rows)
    return (
        f"{mean:.2f} (training episodes in {tail_in_words(rows)}, {rows[-1]['step']:,} in all)"
        if episodes
        else "not recorded"
    )


def _card(loaded: Loaded, result: str, place: str) -> str:
    """A model card as hubs read it: YAML, then what it is, how it was made, how to use it."""
    config, spec, weights = loaded.config, loaded.spec, loaded.weights
    trained = "not recorded" if loaded.step is None else f"{loaded.step:,} steps"
    count = sum(array.size for name, array in weights.items() if not name.startswith("support."))
    settings = "\n".join(f"| {name} | {value} |" for name, value in config.to_json().items())
    return f"""---
library_name: cramerl
pipeline_tag: reinforcement-learning
tags: [reinforcement-learning, distributional, {config.agent}, {config.env.replace("/", "-")}]
---
# {config.agent} on {config.env}

| | |
|---|---|
| agent | {config.agent} |
| environment | {config.env} ({spec.family}, {spec.num_actions} actions, observations {spec.observation_shape}) |
| parameters | {count:,} |
| seed | {config.seed} |
| trained | {trained} |
| mean return | {result} |

```python
import cramerl

agent = cramerl.load_agent("{place}")
atoms, masses = agent.distributions(observations)  # (N, actions, atoms): predicted distributions of the return
actions = agent.act(observations)
```

`cramerl play {place}` plays it, and `cramerl watch {place}` shows what it predicts. Limits: trained on this
environment and these settings only; masses of s51, u51 and l51 may be negative; one seed says little about agents.

## Settings
| setting | value |
|---|---|
{settings}
"""
