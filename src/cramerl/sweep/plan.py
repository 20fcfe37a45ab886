"""What a sweep consists of: runs (agent x environment x settings x seed), and the cells they are trained in.

A cell is one process and one folder. Where the environment is a JAX program its seeds, learning rates and mass
penalties are lanes of one program; elsewhere it is one run. Nothing here touches a disk or a process.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from cramerl.runs.config import LANES, TrainConfig, require_agent_settings
from cramerl.runs.presets import PRESETS, applies, preset, require_env_settings

_DEFAULTS = {setting.name: setting.default for setting in dataclasses.fields(TrainConfig)}
# What does not change what is learned: a run that differs in these alone is the same run.
_FREE = ("steps", "preset", "checkpoints", "tensorboard", "track", "replay_on", "eval_episodes", "eval_epsilon")
_AXIS_GROUPS = ("environment", "learner", "head")
AXES = tuple(
    s.name for s in dataclasses.fields(TrainConfig) if s.metadata["group"] in _AXIS_GROUPS and s.name not in _FREE
)
"""Settings that may have several values in a sweep."""
_MOST_SEEDS = 10_000
Identity = tuple[Any, ...]
MOST_LANES = 4096


@dataclass(frozen=True)
class Sweep:
    """What is asked for.

    Attributes:
        agents: their names.
        envs: names of environments.
        seeds: of each combination.
        axes: settings with several values.
        changes: settings with one value, in place of the preset's.
        preset: where the other settings come from; None for the preset that fits each environment.
        chosen: settings of one agent in one environment, such as a learning rate that was chosen for it.
        max_lanes: most lanes in one program.
        variants: settings that a search tries, of one agent in one environment; each is a combination of its own.
        allow_variants: whether cells of the same agent and environment with other settings may be there.
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
        for name in ("agents", "envs", "seeds"):
            if not getattr(self, name):
                raise ValueError(f"{name} must be one or more, got none")
        for name, values in self.axes.items():
            if name not in AXES or isinstance(_DEFAULTS[name], tuple):
                raise ValueError(f"{name} must have one value in a sweep, got {_listed(values)}")
            if len(set(values)) < len(values):
                raise ValueError(f"{name} must have values that differ, got {_listed(values)}")
        require_agent_settings((*self.axes, *self.changes), self.agents)
        require_env_settings((*self.axes, *self.changes), self.envs)


class Cell(NamedTuple):
    """Runs that are trained together.

    Attributes:
        folder: where, below the folder of the sweep.
        config: settings of the program.
    """

    folder: str
    config: TrainConfig


def parse_seeds(text: str) -> tuple[int, ...]:
    """Seeds from words such as ``0-9`` or ``0,2,5-7``, in order.

    Example:
        >>> parse_seeds("5-7,0,2")
        (0, 2, 5, 6, 7)
    """
    seeds: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip(), re.ASCII)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last < 2**31 or last - first >= _MOST_SEEDS:
            raise ValueError(f"seeds must be integers from 0 to {2**31 - 1} such as 0-9 or 0,2,5-7, got {text!r}")
        seeds |= set(range(first, last + 1))
    if len(seeds) > _MOST_SEEDS:
        raise ValueError(f"seeds must be at most {_MOST_SEEDS}, got {len(seeds)}")
    return tuple(sorted(seeds))


def wanted_runs(sweep: Sweep) -> list[TrainConfig]:
    """The settings of every run, one seed each; settings that come to the same run count once."""
    runs: dict[Identity, TrainConfig] = {}
    for env, agent in itertools.product(sweep.envs, sweep.agents):
        changes = {name: value for name, value in sweep.changes.items() if applies(name, agent, env)}
        changes |= sweep.chosen.get((agent, env), {})
        axes = {name: values for name, values in sweep.axes.items() if applies(name, agent, env)}
        variants = sweep.variants.get((agent, env), [{}])
        for variant, values in itertools.product(variants, itertools.product(*axes.values())):
            config = preset(
                sweep.preset, agent, env, **(changes | dict(zip(axes, values, strict=True)) | dict(variant))
            )
            for seed in sweep.seeds:
                run = dataclasses.replace(config, seed=seed)
                runs.setdefault(identity(run), run)
    return list(runs.values())


def identity(run: TrainConfig) -> Identity:
    """What makes a run the run it is: all settings, those that change nothing for its agent at their defaults."""
    return tuple(
        default if name in _FREE or not applies(name, run.agent, run.env) else getattr(run, name)
        for name, default in _DEFAULTS.items()
    )


def shape(config: TrainConfig) -> tuple[Any, ...]:
    """What decides whether a program can be built: not rates, penalties and the like."""
    values = {name: getattr(config, name) for name in AXES}
    sizes = [value for name, value in values.items() if name in ("v_min", "v_max") or not isinstance(value, float)]
    return (config.agent, config.env, *sizes)


def require_consistent(
    runs: Iterable[TrainConfig],
    there: Mapping[str, TrainConfig],
    varied: Collection[str],
    chosen: Collection[str] = (),
    *,
    searched: bool = False,
) -> None:
    """Refuse to mix runs of other settings into a sweep, but for those that are varied.

    Args:
        runs: what is asked for.
        there: settings of the cells that are there, by folder.
        varied: settings that may differ between the runs of one agent in one environment.
        chosen: settings that another sweep gave.
        searched: whether the runs are a search's, which has no --allow-variants, and whose several values are searched.
    """
    asked: dict[tuple[str, str], list[Identity]] = {}
    for run in runs:
        asked.setdefault((run.agent, run.env), []).append(identity(run))
    for folder, config in there.items():
        old = identity(config.single_runs()[0])
        differences = [(_differences(old, run, varied), run) for run in asked.get((config.agent, config.env), [])]
        if not differences or not all(names for names, _ in differences):
            continue
        names, run = min(differences, key=lambda pair: len(pair[0]))
        name, place = names[0], list(_DEFAULTS).index(names[0])
        before, now = old[place], run[place]
        way = "take another folder"
        if name in AXES and not isinstance(before, tuple) and not searched:
            way += "" if name in chosen else f", or vary it: --{_dashed(name)} {_word(before)},{_word(now)}"
            way += ", or say --allow-variants to have both"
        raise ValueError(f"{folder} was trained with {name} = {before!r}, and this sweep asks for {now!r}: {way}")


def axes_between(runs: Iterable[TrainConfig], there: Iterable[TrainConfig]) -> dict[str, tuple[Any, ...]]:
    """Settings, and values, in which runs differ from those of the same agent and environment that are there."""
    groups: dict[tuple[str, str], list[TrainConfig]] = {}
    for run in (*(run for config in there for run in config.single_runs()), *runs):
        groups.setdefault((run.agent, run.env), []).append(run)
    found: dict[str, dict[Any, None]] = {}
    for group in groups.values():
        one = group[0]
        for name in (n for n in AXES if applies(n, one.agent, one.env) and not isinstance(_DEFAULTS[n], tuple)):
            values = dict.fromkeys(getattr(run, name) for run in group)
            if len(values) > 1:
                found.setdefault(name, {}).update(values)
    return {name: tuple(values) for name, values in found.items()}


def cells_of(
    runs: Iterable[TrainConfig], is_gymnax: Callable[[str], bool], varied: Collection[str], max_lanes: int = MOST_LANES
) -> list[Cell]:
    """Put runs into cells; those of the first seeds come first, so that every part of a sweep is a comparison.

    Args:
        runs: one seed each.
        is_gymnax: whether an environment, by its name, is a JAX program.
        varied: settings to be told from the folder's name.
        max_lanes: most lanes in one program.
    """
    groups: dict[Identity, list[TrainConfig]] = {}
    for run in runs:
        as_lanes = ("seed", *LANES) if is_gymnax(run.env) else ()
        static = tuple(None if name in as_lanes else getattr(run, name) for name in _DEFAULTS)
        groups.setdefault(static, []).append(run)
    configs = [config for group in groups.values() for config in _programs(group, max_lanes)]
    configs.sort(key=lambda config: config.seed)
    return [Cell(cell_folder(config, varied), config) for config in configs]


def cell_folder(config: TrainConfig, varied: Collection[str] = ()) -> str:
    """The folder of a cell inside the folder of its sweep.

    Example:
        >>> cell_folder(TrainConfig(agent="s51", env="pong", seed=3), ["normalisation"])
        'pong/s51__seed-3__normalisation-after'
    """
    last = config.seed + config.lanes - 1
    words = [config.agent, f"seeds-{config.seed}-{last}" if config.lanes > 1 else f"seed-{config.seed}"]
    for name in (n for n in _DEFAULTS if n in varied and applies(n, config.agent, config.env)):
        values = getattr(config, LANES.get(name, name), None) or getattr(config, name)
        texts = [_word(value) for value in (values if isinstance(values, tuple) else (values,))]
        if len(texts) > 6:
            texts = [texts[0], "to", texts[-1], f"{len(texts)}-values"]
        words.append(f"{_dashed(name)}-{'_'.join(texts)}")
    return f"{re.sub('[/:]', '-', config.env)}/{'__'.join(words)}"


def train_arguments(config: TrainConfig, out: Path) -> list[str]:
    """The words after ``cramerl`` that train a program of these settings: whole in themselves, no file is needed."""
    known = config.preset if config.preset in PRESETS else None  # a run may be of a preset that is gone
    base = preset(known, config.agent, config.env)
    words = ["train", config.agent, config.env, "--preset", base.preset]
    left_out = {"agent", "env", "preset", *(one for one, several in LANES.items() if getattr(config, several))}
    for name, default in base.to_json().items():
        value = config.to_json()[name]
        # An older run may have what its agent or environment has no use for, which would be refused now.
        if name not in left_out and value != default and applies(name, config.agent, config.env):
            words += [f"--{_dashed(name)}", _word(tuple(value) if isinstance(value, list) else value)]
    return [*words, "--out", str(out)]


def resume_arguments(out: Path, steps: int | None = None) -> list[str]:
    """The words after ``cramerl`` that go on with a run, to a new total of steps where one is given."""
    return ["resume", str(out), *(() if steps is None else ("--steps", str(steps)))]


def _differences(one: Identity, other: Identity, varied: Collection[str]) -> list[str]:
    pairs = zip(_DEFAULTS, one, other, strict=True)
    return [name for name, x, y in pairs if x != y and name != "seed" and name not in varied]


def _programs(runs: list[TrainConfig], max_lanes: int) -> Iterator[TrainConfig]:
    """Cover runs that differ in seed, learning rate and mass penalty with programs: penalties x rates x seeds."""
    table: dict[float, dict[int, list[float]]] = {}
    for run in runs:
        table.setdefault(run.mass_penalty, {}).setdefault(run.seed, []).append(run.learning_rate)
    blocks: dict[tuple[int, int, tuple[float, ...]], list[float]] = {}
    for penalty, rates_of in table.items():
        for block in _blocks(rates_of):
            blocks.setdefault(block, []).append(penalty)
    most = max(1, min(max_lanes, MOST_LANES))
    for (seed, count, all_rates), all_penalties in blocks.items():
        for rates, penalties in _parts(all_rates, tuple(all_penalties), most):
            seeds = most // (len(rates) * len(penalties))
            lanes = {
                "learning_rate": rates[0],
                "mass_penalty": penalties[0],
                "learning_rates": rates if len(rates) > 1 else (),
                "mass_penalties": penalties if len(penalties) > 1 else (),
            }
            for first in range(seed, seed + count, seeds):
                yield dataclasses.replace(runs[0], seed=first, lanes=min(seeds, seed + count - first), **lanes)


def _parts(rates: tuple[float, ...], penalties: tuple[float, ...], most: int) -> Iterator[tuple[Any, Any]]:
    """Rates and penalties in parts of at most so many combinations."""
    if len(rates) * len(penalties) <= most:
        yield rates, penalties
        return
    for penalty in penalties:
        for start in range(0, len(rates), most):
            yield rates[start : start + most], (penalty,)


def _blocks(rates_of: dict[int, list[float]]) -> Iterator[tuple[int, int, tuple[float, ...]]]:
    """Seeds that follow one another and have the same rates: first seed, how many, rates."""
    first, count, rates = -1, 0, ()
    for seed in sorted(rates_of):
        if count and seed == first + count and tuple(rates_of[seed]) == rates:
            count += 1
            continue
        if count:
            yield first, count, rates
        first, count, rates = seed, 1, tuple(rates_of[seed])
    if count:
        yield first, count, rates


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    return _listed(value) if isinstance(value, tuple) else str(value)


def _listed(values: Iterable[Any]) -> str:
    return ",".join(_word(value) for value in values)


def _dashed(name: str) -> str:
    return name.replace("_", "-")
