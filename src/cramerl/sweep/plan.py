"""What a sweep consists of: runs (agent x environment x settings x seed), and the jobs that train them.

Nothing here touches a disk or a process.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from cramerl.deep.envs.names import env_family
from cramerl.runs.config import DEFAULTS, LANE_SETTINGS, SETTINGS, TrainConfig, require_agent_settings
from cramerl.runs.group import MOST_LANES, RunGroup
from cramerl.runs.presets import applies, preset, require_env_settings

AXES = tuple(name for name, setting in SETTINGS.items() if setting.role == "learning")
"""Settings that may have several values in a sweep."""
Identity = tuple[Any, ...]
_MOST_NAMED = 6  # values of a setting in a folder's name


@dataclass(frozen=True)
class Sweep:
    """The runs a user asks for.

    Attributes:
        agents: their names.
        envs: names of environments.
        seeds: of each combination.
        axes: settings with several values.
        changes: settings with one value, in place of the preset's.
        preset: where the other settings come from; None for the preset that fits each environment.
        chosen: settings of one agent in one environment, such as a learning rate that was chosen for it.
        max_lanes: most runs in one program.
        variants: settings that a search tries for one agent in one environment, each instead of the axes.
        allow_variants: whether the folder may hold runs of the same agent and environment with other settings.
    """

    agents: tuple[str, ...]
    envs: tuple[str, ...]
    seeds: tuple[int, ...]
    axes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    changes: Mapping[str, Any] = field(default_factory=dict)
    preset: str | None = None
    chosen: Mapping[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    max_lanes: int = MOST_LANES
    variants: Mapping[tuple[str, str], Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    allow_variants: bool = False

    @property
    def varied(self) -> dict[str, tuple[Any, ...]]:
        """Settings with several values, and the values."""
        found = {name: dict.fromkeys(values) for name, values in self.axes.items()}
        for variant in itertools.chain.from_iterable(self.variants.values()):
            for name, value in variant.items():
                found.setdefault(name, {})[value] = None
        return {name: tuple(values) for name, values in found.items()}

    def __post_init__(self) -> None:
        for name, values in self.axes.items():
            if name not in AXES or isinstance(DEFAULTS[name], tuple):
                raise ValueError(f"{name} must have one value in a sweep, got {value_text(tuple(values))}")
            if len(set(values)) < len(values):
                raise ValueError(f"{name} must have values that differ, got {value_text(tuple(values))}")
        require_agent_settings((*self.axes, *self.changes), self.agents)
        require_env_settings((*self.axes, *self.changes), self.envs)


class Job(NamedTuple):
    """One process of a sweep: it trains a group of runs into one folder.

    Attributes:
        folder: below the folder of the sweep.
        group: the runs.
        step: agent steps done so far.
        start: whether it starts in an empty folder, at the last checkpoint, or again from the beginning because its
            checkpoints cannot be resumed from.
    """

    folder: str
    group: RunGroup
    step: int = 0
    start: Literal["new", "resume", "restart"] = "new"

    @property
    def steps(self) -> int:
        """Agent steps of each run."""
        return self.group.first.steps

    @property
    def resumable(self) -> bool:
        """Whether the job continues where it was stopped; otherwise it starts again from the beginning."""
        return self.group.first.checkpoints == "full"


def wanted_runs(sweep: Sweep) -> list[TrainConfig]:
    """The settings of every run; combinations that give the same run count once."""
    runs: dict[Identity, TrainConfig] = {}
    for env, agent in itertools.product(sweep.envs, sweep.agents):
        changes = {name: value for name, value in sweep.changes.items() if applies(name, agent, env)}
        changes |= sweep.chosen.get((agent, env), {})
        axes = {name: values for name, values in sweep.axes.items() if applies(name, agent, env)}
        variants = sweep.variants.get((agent, env), [{}])
        for variant, values in itertools.product(variants, itertools.product(*axes.values())):
            settings = changes | dict(zip(axes, values, strict=True)) | dict(variant)
            config = preset(sweep.preset, agent, env, **settings)
            for seed in sweep.seeds:
                run = dataclasses.replace(config, seed=seed)
                runs.setdefault(identity(run), run)
    return list(runs.values())


def identity(run: TrainConfig) -> Identity:
    """What makes a run the same run: all settings that change it, with those its agent does not use at defaults."""
    return tuple(
        default
        if SETTINGS[name].role in ("record", "length") or not applies(name, run.agent, run.env)
        else getattr(run, name)
        for name, default in DEFAULTS.items()
    )


def group_runs(runs: Iterable[TrainConfig], max_lanes: int = MOST_LANES) -> list[RunGroup]:
    """Put runs that can share a program into groups of at most ``max_lanes``; outside gymnax a run is a group of one.

    Groups with the first seeds come first, so that an unfinished sweep can already be compared.
    """
    programs: dict[Identity, list[TrainConfig]] = {}
    for run in runs:
        lanes = LANE_SETTINGS if env_family(run.env) == "gymnax" else ()
        programs.setdefault(tuple(None if name in lanes else getattr(run, name) for name in SETTINGS), []).append(run)
    groups = []
    for same in programs.values():
        same.sort(key=lambda run: run.seed)  # stable: all values of a seed stay together
        for start in range(0, len(same), max_lanes):
            part = same[start : start + max_lanes]
            part.sort(key=lambda run: [getattr(run, name) for name in reversed(LANE_SETTINGS)])
            groups.append(RunGroup(tuple(part)))
    return sorted(groups, key=lambda group: min(group.values("seed")))


def folder_name(group: RunGroup, varied: Collection[str] = ()) -> str:
    """The folder of a group inside the folder of its sweep.

    Example:
        >>> folder_name(RunGroup.of(TrainConfig(agent="s51", env="pong"), seed=[0, 1, 2, 5]), ["normalisation"])
        'pong/s51__seeds-0-2_5__normalisation-after'
    """
    config, seeds = group.first, sorted(group.values("seed"))
    parts = [config.agent, f"seed{'s' if len(seeds) > 1 else ''}-{_joined(_ranges(seeds))}"]
    for name in (n for n in SETTINGS if n in varied and applies(n, config.agent, config.env)):
        parts.append(f"{name.replace('_', '-')}-{_joined([value_text(value) for value in group.values(name)])}")
    return f"{re.sub('[/:]', '-', config.env)}/{'__'.join(parts)}"


def require_consistent(
    runs: Iterable[TrainConfig],
    existing: Mapping[str, RunGroup],
    varied: Collection[str],
    chosen: Collection[str] = (),
    *,
    searched: bool = False,
) -> None:
    """Raise ValueError if a sweep would mix runs of other settings with existing ones.

    Args:
        runs: those the user asks for.
        existing: groups that are in the folder of the sweep, by their folder.
        varied: settings that may differ between the runs of one agent in one environment.
        chosen: settings that another sweep chose.
        searched: whether a search asks for the runs. It has no --allow-variants, and searches settings with several
            values.
    """
    asked: dict[tuple[str, str], list[Identity]] = {}
    for run in runs:
        asked.setdefault((run.agent, run.env), []).append(identity(run))
    may_differ = ("seed", *varied)
    for folder, group in existing.items():
        old = identity(group.first)
        differences = [
            {name: (x, y) for name, x, y in zip(SETTINGS, old, new, strict=True) if x != y and name not in may_differ}
            for new in asked.get((group.first.agent, group.first.env), [])
        ]
        if not differences or not all(differences):
            continue
        name, (before, now) = next(iter(min(differences, key=len).items()))
        hint = "use another folder"
        if name in AXES and not isinstance(before, tuple) and not searched:
            flag = f"--{name.replace('_', '-')} {value_text(before)},{value_text(now)}"
            hint += "" if name in chosen else f", or vary it: {flag}"
            hint += ", or keep both with --allow-variants"
        raise ValueError(f"{folder} was trained with {name} = {before!r}, but this sweep asks for {now!r}: {hint}")


def axes_between(runs: Iterable[TrainConfig], existing: Iterable[RunGroup]) -> dict[str, tuple[Any, ...]]:
    """Settings, and values, in which runs differ from existing ones of the same agent and environment."""
    subjects: dict[tuple[str, str], list[TrainConfig]] = {}
    for run in (*(run for group in existing for run in group.configs), *runs):
        subjects.setdefault((run.agent, run.env), []).append(run)
    found: dict[str, dict[Any, None]] = {}
    for (agent, env), same in subjects.items():
        for name in (n for n in AXES if applies(n, agent, env) and not isinstance(DEFAULTS[n], tuple)):
            values = dict.fromkeys(getattr(run, name) for run in same)
            if len(values) > 1:
                found.setdefault(name, {}).update(values)
    return {name: tuple(values) for name, values in found.items()}


def value_text(value: Any) -> str:
    """A setting's value as it is written on a command line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    if value is None:
        return "none"
    return ",".join(map(value_text, value)) if isinstance(value, tuple) else str(value)


def _ranges(seeds: list[int]) -> list[str]:
    """Sorted integers in words such as ``0-2`` and ``5``."""
    runs = itertools.groupby(enumerate(seeds), key=lambda pair: pair[1] - pair[0])
    parts = [[seed for _, seed in run] for _, run in runs]
    return [f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts]


def _joined(texts: list[str]) -> str:
    if len(texts) > _MOST_NAMED:
        texts = [texts[0], "to", texts[-1], f"{len(texts)}-values"]
    return "_".join(texts)
