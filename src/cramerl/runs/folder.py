"""The folder of a run: settings, versions, metrics, timing, and reading them back.

``metrics.jsonl`` and ``episodes.jsonl`` contain nothing that depends on the clock: two runs with the same settings on
the same machine write the same bytes, interrupted or not. Speed and time go to ``timing.jsonl``.
"""

from __future__ import annotations

import datetime
import fcntl
import importlib.metadata
import json
import os
import platform
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cramerl._files import write_json
from cramerl._folders import LOG_BYTES, TEXT_BYTES, inside, open_inside, parse_json, read_inside
from cramerl._version import __version__
from cramerl.runs.config import TrainConfig
from cramerl.runs.group import RunGroup

if TYPE_CHECKING:
    from cramerl.deep.envs.base import EnvSpec

METRICS, EPISODES, TIMING = "metrics.jsonl", "episodes.jsonl", "timing.jsonl"
CONFIG, SPEC, VERSIONS, WEIGHT_NORMS = "config.json", "environment.json", "versions.json", "weights.json"
EXPORTED_WEIGHTS = "model.safetensors"
RUN_FILES = {CONFIG, SPEC, VERSIONS, METRICS, EPISODES, TIMING, WEIGHT_NORMS, "checkpoints", "tensorboard", ".lock"}
"""All that training writes into a folder."""
_XLA_VARIABLES = ("XLA_FLAGS", "LIBTPU_INIT_ARGS", "NVIDIA_TF32_OVERRIDE")  # of the environment; they change results
_LIBRARIES = ("jax", "jaxlib", "optax", "numpy", "gymnax", "ale-py", "gymnasium", "safetensors")


class RunFolder:
    """The folder of one run, or of one group of runs.

    Args:
        path: the folder.
    """

    def __init__(self, path: Path):
        self.path = Path(path)

    @classmethod
    def create(cls, group: RunGroup, spec: EnvSpec, path: Path | None = None) -> RunFolder:
        """Make the folder of a new run or group, by default ``runs/ENV__AGENT__SEED__TIME``, and write its settings."""
        config = group.first
        if path is None:
            now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S-%f")
            name = f"{config.env.replace('/', '-').replace(':', '-')}__{config.agent}__{config.seed}__{now}"
            path = Path("runs") / name
        require_new_folder(path)
        _remove_leftovers(path)
        write_json(inside(path, VERSIONS), versions())
        write_json(inside(path, SPEC), spec._asdict())
        write_json(inside(path, CONFIG), group.to_json())
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """The folder of an existing run."""
        path = Path(path)
        _require_begun(path)
        for name in (CONFIG, SPEC):
            if not (path / name).is_file():
                raise ValueError(f"run must be a folder made by cramerl train, {path} has no {name}")
        return cls(path)

    @property
    def group(self) -> RunGroup:
        """The settings of its run, or of the runs of a group."""
        return load_group(self.path)

    def change_group(self, group: RunGroup) -> None:
        """Replace the settings."""
        write_json(inside(self.path, CONFIG), group.to_json())

    @property
    def spec(self) -> EnvSpec:
        """The environment it was trained in."""
        from cramerl.deep.envs.base import spec_from_json

        return read_object(self.path, SPEC, spec_from_json)

    def metrics(self) -> Iterator[dict[str, Any]]:
        """The lines of ``metrics.jsonl``, without a last line that a crash cut short."""
        file = self.path / METRICS
        if not file.exists():
            return
        with open_inside(self.path, METRICS, most=LOG_BYTES) as lines:
            for number, line in enumerate(lines, start=1):
                if not line.endswith(b"\n"):
                    return
                try:
                    row = parse_json(line.decode(errors="replace"))
                except ValueError as error:
                    raise ValueError(f"{file} line {number} is not JSON: {error}") from error
                if not is_log_row(row):
                    raise ValueError(f"{file} line {number} is not a line of a log: it has no step")
                yield row

    @contextmanager
    def locked(self) -> Iterator[int]:
        """Keep other processes from training into the same folder, and remove what one that was killed half wrote.

        The lock ends with the process.
        """
        with lock_folder(self.path, f"another process is training in {self.path}; wait for it or stop it") as lock:
            _remove_leftovers(self.path)
            yield lock

    def append_metrics(self, rows: list[dict[str, Any]]) -> None:
        """Add lines."""
        _append(self.path, METRICS, _lines(rows))

    def describe_weights(
        self,
        step: int,
        lanes: list[dict[str, Any]],
        arrays: list[dict[str, np.ndarray]],
        diverged: Collection[int] = (),
    ) -> None:
        """Write the shapes and norms of each run's final weights: enough to compare two runs.

        The norms of a run that diverged are null.
        """
        shapes = {name.replace(".", "/"): "x".join(map(str, array.shape)) for name, array in arrays[0].items()}
        norms = [
            lane | {name.replace(".", "/"): None if number in diverged else _norm(array) for name, array in one.items()}
            for number, (lane, one) in enumerate(zip(lanes, arrays, strict=True))
        ]
        write_json(inside(self.path, WEIGHT_NORMS), {"step": step, "shapes": shapes, "norms": norms})

    def append_timing(self, rows: list[dict[str, Any]]) -> None:
        """Add lines."""
        _append(self.path, TIMING, _lines(rows))

    def append_episodes(self, lines: Iterable[str]) -> None:
        """Add lines."""
        _append(self.path, EPISODES, "".join(lines))

    def log_sizes(self, *, settle: bool = False) -> dict[str, int]:
        """Bytes of ``metrics.jsonl`` and ``episodes.jsonl``; ``settle`` waits until they are on the disk."""
        return {name: _size(self.path, name, settle=settle) for name in (METRICS, EPISODES)}

    def cut_logs(self, sizes: Mapping[str, int]) -> None:
        """Remove the lines written after a checkpoint, which says how long the logs were."""
        for name in (METRICS, EPISODES):
            found, size = _size(self.path, name), sizes.get(name, 0)
            if found < size:
                raise ValueError(f"{self.path / name} is shorter than the checkpoint says ({found} < {size} bytes)")
        for name in (METRICS, EPISODES):
            if (self.path / name).exists():
                with open_inside(self.path, name, "update") as log:
                    log.truncate(sizes.get(name, 0))


def require_new_folder(path: Path) -> None:
    """Raise ValueError, with what to do instead, unless a run can be written into a folder."""
    if path.exists() and not path.is_dir():
        raise ValueError(f"out must be a new or empty folder, {path} is a file")
    if not path.is_dir() or is_half_made(path):
        return
    instead = "choose another, or remove it"
    if (path / CONFIG).is_file():
        instead = (
            f"to continue its run: cramerl resume {shlex.quote(str(path))}; to train another, choose another folder"
        )
    raise ValueError(f"out must be a new or empty folder, {path} exists and is not empty; {instead}")


def is_half_made(path: Path) -> bool:
    """Whether a folder is empty, or holds only what was written for a run that was killed before it began."""
    parts = tuple(f".{Path(name).stem}-" for name in (VERSIONS, SPEC, CONFIG))  # of temporary names
    return all(entry.name in (VERSIONS, SPEC) or entry.name.startswith(parts) for entry in path.iterdir())


def _remove_leftovers(path: Path) -> None:
    """Remove the temporary files of processes that were killed while they wrote."""
    stems = "|".join(Path(name).stem for name in (VERSIONS, SPEC, CONFIG, WEIGHT_NORMS))
    for left in path.glob(".*-*.json"):
        if re.fullmatch(rf"\.({stems})-\d+\.json", left.name):
            left.unlink()


def _require_begun(path: Path) -> None:
    if path.is_dir() and any(path.iterdir()) and is_half_made(path):
        begin = f"cramerl train ... --out {shlex.quote(str(path))}"
        raise ValueError(f"run must be a folder made by cramerl train, {path} has no {CONFIG}; to begin one: {begin}")


@contextmanager
def lock_folder(path: Path, taken: str) -> Iterator[int]:
    """Lock a folder; if it is locked, ValueError says ``taken``. Children that inherit the descriptor keep the lock."""
    with open_inside(path, ".lock", "update") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ValueError(taken) from error
        yield file.fileno()


def read_object(folder: Path, name: str, build: Callable[[dict[str, Any]], Any], *, most: int = TEXT_BYTES) -> Any:
    """Build something from the object in a JSON file of a folder; see `open_inside` and `parse_object`."""
    return parse_object(Path(folder) / name, read_inside(folder, name, most=most), build)


def parse_object(file: Path, content: bytes, build: Callable[[dict[str, Any]], Any]) -> Any:
    """Build something from the object in JSON; ValueError names the file it is from, and what is wrong with it."""
    try:
        try:
            values = parse_json(content)
        except json.JSONDecodeError as error:
            raise ValueError(f"it is not JSON ({error})") from error
        if not isinstance(values, dict):
            raise ValueError(f"it must contain an object, got {type(values).__name__}")
        return build(values)
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"{file} cannot be used: {error}") from error


def is_log_row(row: Any) -> bool:
    """Whether something is a line of a log: an object with a step that fits an integer of 64 bits."""
    step = row.get("step") if isinstance(row, dict) else None
    return isinstance(step, int) and not isinstance(step, bool) and 0 <= step < 2**63


def versions() -> dict[str, Any]:
    """What a run's results depend on besides its settings."""
    import jax

    found = {"cramerl": __version__, "python": platform.python_version(), "machine": platform.machine()}
    for name in _LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    device = jax.devices()[0]
    flags = {name: text for name in _XLA_VARIABLES if (text := os.environ.get(name, "").strip())}
    told = jax.config.values["jax_default_matmul_precision"]
    precision = _matmul_precision(told, device.platform)
    return found | {"device": f"{device.platform}: {device.device_kind}", "matmul_precision": precision} | flags


def _matmul_precision(setting: str | None, platform: str) -> str:
    """The precision of float32 products, as JAX was told; where it was told nothing, what XLA then does."""
    if setting is not None:
        return setting
    return {
        "cpu": "default (float32)",
        "gpu": "default (TF32 on NVIDIA GPUs since Ampere)",
        "tpu": "default (bfloat16)",
    }.get(platform, "default")


def _norm(array: np.ndarray) -> float | None:
    """The norm with seven digits; None where squares overflow, because JSON has no infinity."""
    norm = np.linalg.norm(array)
    return float(f"{norm:.7g}") if np.isfinite(norm) else None


def _lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)


def _append(folder: Path, name: str, text: str) -> None:
    try:
        with open_inside(folder, name, "append") as out:
            out.write(text.encode())
    except OSError as error:  # such as a full disk, of which the system does not say where
        raise OSError(error.errno, error.strerror, str(folder / name)) from error


def run_folders(runs: Any) -> list[Path]:
    """The folders of runs: each a path, or what `cramerl.train` returned; one of them or several."""
    if isinstance(runs, (str, Path)) or hasattr(runs, "folder"):
        runs = [runs]
    return [Path(getattr(run, "folder", run)) for run in runs]


def _size(folder: Path, name: str, *, settle: bool = False) -> int:
    if not (folder / name).exists():
        return 0
    with open_inside(folder, name, most=LOG_BYTES) as lines:
        if settle:
            os.fsync(lines.fileno())
        return os.fstat(lines.fileno()).st_size


def load_group(path: str | Path) -> RunGroup:
    """The settings of a run, a group or an export."""
    path = Path(path)
    _require_begun(path)
    if not (path / CONFIG).is_file():
        raise ValueError(f"run must be a folder made by cramerl train or cramerl export, {path} has no {CONFIG}")
    return read_object(path, CONFIG, RunGroup.from_json)


def load_config(path: str | Path, lane: int = 0) -> TrainConfig:
    """The settings of one run: that of a folder, or of one lane of a group."""
    group = load_group(path)
    if isinstance(lane, bool) or not isinstance(lane, int) or not 0 <= lane < len(group):
        raise ValueError(f"lane must be one of {group.describe()} in {path}, got {lane!r}")
    return group.configs[lane]
