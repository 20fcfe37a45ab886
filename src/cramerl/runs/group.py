"""Runs that one compiled program trains: configs that differ only in settings that lanes may differ in."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cramerl.runs.config import LANE_SETTINGS, SETTINGS, TrainConfig, require_agent_settings

MOST_LANES = 4096
DIVERGED = "diverged"
"""Tag of the last log line of a run whose loss or weights are no longer finite."""
_MOST_NAMED = 20
_MAY_CHANGE = ("record", "length", "start")  # roles of settings that a resumed run may have changed


@dataclass(frozen=True, repr=False)
class RunGroup:
    """One or more runs that one program trains at once; a run's position is its lane.

    Args:
        configs: settings of each run. They differ only in the seed, the learning rate and the mass penalty.

    Example:
        >>> config = TrainConfig(agent="s51", env="Breakout-MinAtar")
        >>> group = RunGroup.of(config, seed=[0, 1], learning_rate=[1e-4, 3e-4])
        >>> group.lanes[1]
        {'learning_rate': 0.0001, 'seed': 1}
    """

    configs: tuple[TrainConfig, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "configs", tuple(self.configs))
        if not 1 <= len(self.configs) <= MOST_LANES:
            raise ValueError(f"a group must have 1 to {MOST_LANES} runs, got {len(self.configs)}")
        for name in SETTINGS:
            values = {getattr(config, name) for config in self.configs}
            if len(values) > 1 and name not in LANE_SETTINGS:
                first, second = sorted(map(repr, values))[:2]
                raise ValueError(
                    f"runs of a group may differ in {', '.join(LANE_SETTINGS)} only, got {name} {first} and {second}"
                )
            if len(values) > 1:
                require_agent_settings([name], [self.first.agent])
        if len(set(self.configs)) < len(self.configs):
            raise ValueError("runs of a group must differ from one another, got one of them twice")

    def __repr__(self) -> str:
        return f"RunGroup({self.first!r}, {len(self)} runs: {self.describe()})"

    @classmethod
    def of(cls, config: TrainConfig, **values: Iterable[Any]) -> RunGroup:
        """Every combination of values of lane settings, the seed varying fastest; without values, one run."""
        order = [name for name in reversed(LANE_SETTINGS) if name in values]
        combinations = itertools.product(*(values[name] for name in order))
        return cls(tuple(dataclasses.replace(config, **dict(zip(order, each, strict=True))) for each in combinations))

    @property
    def first(self) -> TrainConfig:
        """The settings of the first run; those that lanes may not differ in are the settings of all."""
        return self.configs[0]

    def __len__(self) -> int:
        return len(self.configs)

    @functools.cached_property
    def lanes(self) -> list[dict[str, Any]]:
        """What tells each run apart, as in the lines of the log: the settings that differ, and always the seed."""
        names = [name for name in reversed(LANE_SETTINGS) if name == "seed" or len(self.values(name)) > 1]
        return [{name: getattr(config, name) for name in names} for config in self.configs]

    def values(self, name: str) -> list[Any]:
        """The different values of a setting, in the order of the lanes."""
        return list(dict.fromkeys(getattr(config, name) for config in self.configs))

    def replace(self, **changes: Any) -> RunGroup:
        """The group with settings changed in every run."""
        return RunGroup(tuple(dataclasses.replace(config, **changes) for config in self.configs))

    def lane_of(self, row: Mapping[str, Any]) -> int | None:
        """The lane a line of the log belongs to; a setting that the line does not name is the first run's."""
        return self._lane_of.get(tuple(row.get(name, getattr(self.first, name)) for name in LANE_SETTINGS))

    @functools.cached_property
    def _lane_of(self) -> dict[tuple[Any, ...], int]:
        keys = (tuple(getattr(config, name) for name in LANE_SETTINGS) for config in self.configs)
        return {key: lane for lane, key in enumerate(keys)}

    def diverged(self, rows: Iterable[Mapping[str, Any]]) -> list[int]:
        """The lanes that diverged, according to the lines of a log."""
        lanes = {self.lane_of(row) for row in rows if row.get(DIVERGED) is True}
        return sorted(lane for lane in lanes if lane is not None)

    def describe(self, lanes: Sequence[int] | None = None) -> str:
        """Runs by lane and settings: all of them, or those of some lanes.

        Example:
            >>> RunGroup.of(TrainConfig(), seed=[4, 5]).describe()
            '0 (seed 4), 1 (seed 5)'
        """
        numbers = list(range(len(self)) if lanes is None else lanes)
        texts = [
            f"{lane} ({', '.join(f'{name} {value}' for name, value in self.lanes[lane].items())})"
            for lane in numbers[:_MOST_NAMED]
        ]
        more = f" and {len(numbers) - _MOST_NAMED} more" if len(numbers) > _MOST_NAMED else ""
        return ", ".join(texts) + more

    def to_json(self) -> dict[str, Any]:
        """The settings that all runs share and, if there are several runs, under ``runs`` those of each."""
        shared = self.first.to_json()
        if len(self) == 1:
            return shared
        return {name: value for name, value in shared.items() if name not in self.lanes[0]} | {"runs": self.lanes}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> RunGroup:
        """A group from plain values; those of earlier versions, which listed seeds and rates in one config, too."""
        # Runs that do not say when their environments were reset were made when all were, at each iteration.
        values = {"environment_resets": "iteration", **values}
        names = ("runs", "lanes", "learning_rates", "mass_penalties")
        runs, number, rates, penalties = (values.pop(name, None) for name in names)
        if runs is None:
            config = TrainConfig.from_json(values)
            seeds = range(config.seed, config.seed + (number or 1))
            several = {"seed": seeds, "learning_rate": rates, "mass_penalty": penalties}
            return cls.of(config, **{name: each for name, each in several.items() if each})
        if not isinstance(runs, list) or not all(isinstance(run, dict) for run in runs):
            raise ValueError(f"runs must be a list of objects, got {runs!r}")
        return cls(tuple(TrainConfig.from_json({**values, **run}) for run in runs))


def as_group(runs: TrainConfig | Sequence[TrainConfig] | RunGroup) -> RunGroup:
    """One config, several, or a group, as a group."""
    if isinstance(runs, RunGroup):
        return runs
    configs = [runs] if isinstance(runs, TrainConfig) else list(runs) if isinstance(runs, Iterable) else [runs]
    for config in configs:
        if not isinstance(config, TrainConfig):
            raise ValueError(f"runs must be a TrainConfig, several, or a RunGroup, got {config!r}")
    return RunGroup(tuple(configs))


def require_same_settings(now: RunGroup, saved: RunGroup, folder: Path) -> None:
    """Raise ValueError unless a checkpoint was made with these settings, except those a resumed run may change."""
    if len(now) != len(saved):
        raise ValueError(
            f"{folder} has {len(now)} runs in config.json, but its checkpoint has {len(saved)}; restore the old "
            "settings, or train a new group"
        )
    for config, before in zip(now.configs, saved.configs, strict=True):
        for name, setting in SETTINGS.items():
            value, old = getattr(config, name), getattr(before, name)
            if setting.role not in _MAY_CHANGE and value != old:
                raise ValueError(
                    f"{folder} has {name} = {value!r} in config.json, but its checkpoint was made with {old!r}; "
                    "restore the old value, or train a new run"
                )
