"""Settings of one run: a frozen dataclass whose fields declare default, help, bounds and everything else about them.

Steps are agent decisions, summed over all parallel environments; in Atari a step is four emulator frames.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import numpy as np

AGENTS = ("dqn", "c51", "s51", "u51", "l51", "qr", "hl_gauss")
_WITH_ATOMS = ("c51", "s51", "u51", "l51", "hl_gauss")
_LARGEST = 2**31 - 1
_MOST_SEEDS = 10_000
_RENAMED = {"base_law": "base_distribution"}  # names of settings in runs of earlier versions


class Setting(NamedTuple):
    """What a setting means, declared at its field of `TrainConfig`.

    Attributes:
        group: the heading of the help text it belongs to.
        help: one line.
        bounds: ``low`` and ``high`` are allowed, ``above`` is not.
        role: what it changes. *subject*: what is trained. *seed*: which repetition of it. *learning*: what is learned.
            *start*: only where learning starts. *length*: how long it takes. *pace*: when log lines and checkpoints are
            written. *record*: only what is stored or shown.
        agents: the agents that use it.
        families: the environment families that use it; empty for all.
        lane: whether runs of one group may differ in it.
        scoring: *protocol*: scores are comparable only if it is equal. *tuned*: a report shows the best value.
            *variant*: a report names an agent by it unless it has its default.
    """

    group: str
    help: str
    bounds: Mapping[str, float]
    role: Literal["subject", "seed", "learning", "start", "length", "pace", "record"] = "learning"
    agents: tuple[str, ...] = AGENTS
    families: tuple[str, ...] = ()
    lane: bool = False
    scoring: Literal["", "protocol", "tuned", "variant"] = ""


def _setting(default: Any, group: str, text: str, *, low: Any = None, high: Any = None, above: Any = None, **more: Any):
    ends = {"low": low, "above": above, "high": high}
    bounds = {name: end for name, end in ends.items() if end is not None}
    return field(default=default, metadata={"setting": Setting(group, text, bounds, **more)})


_run = functools.partial(_setting, group="run")
_environment = functools.partial(_setting, group="environment")
_learner = functools.partial(_setting, group="learner")
_head = functools.partial(_setting, group="head")
_evaluation = functools.partial(_setting, group="evaluation", role="record")
_atari = functools.partial(_environment, families=("atari",), scoring="protocol")


@dataclass(frozen=True)
class TrainConfig:
    """Settings of one run: one agent, one environment, one seed.

    Start from `cramerl.preset` and change what you want with ``dataclasses.replace``.

    Example:
        >>> config = TrainConfig(agent="s51", env="Breakout-MinAtar", steps=10_000)
        >>> config.discount
        0.99
    """

    agent: Literal["dqn", "c51", "s51", "u51", "l51", "qr", "hl_gauss"] = _run(
        "s51", text="dqn, c51, s51 (the paper's), u51 and l51 (ours), qr (QR-DQN) or hl_gauss", role="subject"
    )
    env: str = _run(
        "Breakout-MinAtar",
        text="a gymnax id (Breakout-MinAtar), an Atari game (pong, ALE/Pong-v5) or a Gymnasium id; gym:NAME is always "
        "Gymnasium's",
        role="subject",
    )
    preset: str = _run("", text="name of the preset these settings started from", role="record")
    seed: int = _run(
        0,
        text="of everything random: weights, exploration, sampling, environments",
        low=0,
        high=_LARGEST,
        role="seed",
        lane=True,
    )
    steps: int = _run(1_000_000, text="agent steps of the whole run", low=1, high=_LARGEST, role="length")
    iteration_steps: int = _run(
        50_000,
        text="steps between checkpoints; with full ones, Atari and Gymnasium environments are reset there",
        low=1,
        high=_LARGEST,
        role="pace",
    )
    log_steps: int = _run(5_000, text="steps per line of metrics.jsonl", low=1, high=_LARGEST, role="pace")
    checkpoints: Literal["full", "weights", "none"] = _run(
        "full", text="full (replay too: exact resume), weights (small; no resume) or none", role="record"
    )
    initial_weights: str = _run(
        "", text="start from the weights of a run or an export, not from random ones", role="start"
    )
    tensorboard: bool = _run(False, text="also write TensorBoard files", role="record")
    track: Literal["none", "wandb", "trackio"] = _run(
        "none", text="also send metrics to Weights & Biases or Trackio", role="record"
    )

    num_envs: int = _environment(
        16, text="parallel environments; the update-to-data ratio does not change", low=1, high=65_536
    )
    sticky: float = _atari(0.0, text="Atari: probability that the last action is repeated", low=0, high=1)
    life_loss_ends: bool = _atari(False, text="Atari: a lost life ends the return for the learner")
    max_episode_steps: int = _environment(
        0, text="time limit in steps, a truncation; 0: the environment's own", low=0, high=10**8, scoring="protocol"
    )
    environment_resets: Literal["needed", "iteration"] = _environment(
        "needed",
        text="Atari, Gymnasium: needed resets at the end of an iteration if the run can be resumed (checkpoints full), "
        "iteration always, as in runs of earlier versions",
        role="record",  # as the kind of checkpoints, on which it depends
        families=("atari", "gymnasium"),
    )
    noop_max: int = _atari(0, text="Atari: most random no-ops at the start", low=0, high=10**4)
    fire_reset: bool = _atari(False, text="Atari: press fire at the start where a game needs it")
    full_action_space: bool = _atari(False, text="Atari: all 18 actions")
    clip_rewards: bool = _environment(
        False, text="clip rewards to [-1, 1] for the learner; scores stay raw", scoring="protocol"
    )

    network: Literal["auto", "nature", "nature_same", "minatar", "minatar_strided", "mlp", "linear"] = _learner(
        "auto",
        text="auto: nature_same for Atari, minatar for other pictures, mlp for vectors; nature pads VALID, nature_same "
        "SAME; minatar_strided has stride 2",
    )
    hidden_units: tuple[int, ...] = _learner(
        (128, 128), text="units of the mlp's layers, separated by commas", low=1, high=10**6
    )
    last_layer_scale: float = _learner(1.0, text="factor on the last layer's initial weights", low=0)
    optimiser: Literal["adam", "rmsprop"] = _learner("adam", text="adam, or rmsprop: centred, decay 0.95 (DQN's)")
    learning_rate: float = _learner(1e-4, text="step size of the optimiser", above=0, lane=True, scoring="tuned")
    optimiser_epsilon: float = _learner(3.125e-4, text="epsilon of the optimiser", above=0)
    discount: float = _learner(0.99, text="gamma per step", low=0, high=1)
    n_step: int = _learner(1, text="rewards summed before the next state is looked at", low=1, high=100)
    double_q: bool = _learner(False, text="choose the next action with the learning network (double Q-learning)")
    batch_size: int = _learner(32, text="transitions per update", low=1, high=2**20)
    update_period_steps: int = _learner(4, text="steps per update: the update-to-data ratio", low=1, high=10**4)
    target_period_steps: int = _learner(
        1_000, text="steps between copies into the target network", low=1, high=_LARGEST
    )
    min_replay_steps: int = _learner(5_000, text="steps before the first update", low=1, high=_LARGEST)
    replay_steps: int = _learner(100_000, text="steps the replay remembers", low=1, high=_LARGEST)
    replay_on: Literal["auto", "device", "host"] = _learner(
        "auto",
        text="where frames are kept: the accelerator's memory or the host's; auto: the former if they fit",
        role="record",
    )
    exploration_final: float = _learner(
        0.05, text="epsilon of epsilon-greedy after the decay", low=0, high=1, scoring="protocol"
    )
    exploration_decay_steps: int = _learner(
        100_000, text="steps from epsilon 1 (held until the first update) to the final one", low=1, high=_LARGEST
    )

    num_atoms: int = _head(51, text="atoms of the support, or quantiles of qr", low=2, high=10_000, agents=AGENTS[1:])
    v_min: float | None = _head(
        None, text="smallest return of the support; none: found and widened while learning", agents=_WITH_ATOMS
    )
    v_max: float | None = _head(None, text="largest return of the support; as v_min", agents=_WITH_ATOMS)
    mass_penalty: float = _head(
        10.0, text="s51: lambda, on unit-spaced atoms", low=0, agents=("s51",), lane=True, scoring="tuned"
    )
    mass_penalty_scale: Literal["orthonormal", "total"] = _head(
        "orthonormal", text="s51: lambda/K or lambda times the squared excess of mass", agents=("s51",), scoring="tuned"
    )
    normalisation: Literal["after", "before"] = _head(
        "after",
        text="s51: correct the target's mass after the backup (the paper's way) or before it",
        agents=("s51",),
        scoring="tuned",
    )
    base_distribution: Literal["uniform", "zero"] = _head(
        "uniform",
        text="u51 with v_min and v_max: where learning starts, uniform on the support or a return of zero",
        agents=("u51",),
        scoring="variant",
    )
    mean_weight: float = _head(
        0.0,
        text="s51, u51: weight of the squared error of the mean, in spacings, beside the Cramér loss",
        low=0,
        agents=("s51", "u51"),
        scoring="variant",
    )
    next_distribution: Literal["signed", "rearranged", "nearest"] = _head(
        "signed",
        text="s51, u51: back up the next signed masses, or the distribution made by sorting their CDF or nearest to it",
        agents=("s51", "u51"),
        scoring="variant",
    )
    dqn_loss: Literal["huber", "squared"] = _head("huber", text="dqn: loss of the temporal difference", agents=("dqn",))
    quantile_threshold: float = _head(1.0, text="qr: threshold of the quantile Huber loss", low=0, agents=("qr",))
    sigma_spacings: float = _head(
        0.75, text="hl_gauss: standard deviation, in spacings of the support", above=0, agents=("hl_gauss",)
    )

    eval_episodes: int = _evaluation(
        0,
        text="episodes of each evaluation, for each run; 0: no evaluation",
        low=0,
        high=10**6,
    )
    eval_period_steps: int = _evaluation(
        0, text="steps between evaluations, at log lines; 0: at the end of each iteration", low=0, high=_LARGEST
    )
    eval_epsilon: float = _evaluation(0.001, text="epsilon of evaluation episodes", low=0, high=1, scoring="protocol")

    def __post_init__(self) -> None:
        for name, setting in SETTINGS.items():
            value = _checked(name, getattr(self, name), setting_types()[name], setting.bounds)
            object.__setattr__(self, name, value)
        if not self.hidden_units:
            raise ValueError("hidden_units must be one or more integers, got none")
        if (self.v_min is None) != (self.v_max is None):
            raise ValueError(f"v_min and v_max must be given together or not at all, got {self.v_min} and {self.v_max}")
        if self.v_min is not None and self.v_max is not None and not self.v_min < self.v_max:
            raise ValueError(f"v_min must be less than v_max, got {self.v_min} and {self.v_max}")
        if self.mass_penalty == 0 and self.mass_penalty_scale == "total":
            object.__setattr__(self, "mass_penalty_scale", "orthonormal")  # without a penalty the scales are the same
        if self.checkpoints == "full":
            object.__setattr__(self, "environment_resets", "needed")  # at every iteration, which is the same
        if self.min_replay_steps > self.replay_steps:
            raise ValueError(
                f"min_replay_steps must be at most replay_steps = {self.replay_steps}, got {self.min_replay_steps}"
            )

    @property
    def resets_environments(self) -> bool:
        """Whether Atari and Gymnasium environments are reset at the end of each iteration, which cuts episodes."""
        return self.checkpoints == "full" or self.environment_resets == "iteration"

    def to_json(self) -> dict[str, Any]:
        """The settings as plain values."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in dataclasses.asdict(self).items()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> TrainConfig:
        """Settings from plain values. An unknown name is an error; a missing setting has its default."""
        values = {_RENAMED.get(name, name): value for name, value in values.items()}
        for name in values:
            if name not in SETTINGS:
                near = difflib.get_close_matches(name, SETTINGS, n=1)
                raise ValueError(f"{name!r} is not a setting{f'; did you mean {near[0]!r}?' if near else ''}")
        return cls(**values)


SETTINGS: dict[str, Setting] = {one.name: one.metadata["setting"] for one in dataclasses.fields(TrainConfig)}
"""What each setting means, by name."""
DEFAULTS: dict[str, Any] = {one.name: one.default for one in dataclasses.fields(TrainConfig)}
LANE_SETTINGS: tuple[str, ...] = tuple(name for name, setting in SETTINGS.items() if setting.lane)
"""The settings in which runs of one group may differ."""


@functools.cache
def setting_types() -> dict[str, Any]:
    """The type of each setting. Cached, because a sweep creates configs by the thousand."""
    return get_type_hints(TrainConfig)


def applies_to_agent(name: str, agent: str) -> bool:
    """Whether an agent uses a setting."""
    return agent in SETTINGS[name].agents


def require_agent_settings(names: Iterable[str], agents: Collection[str]) -> None:
    """Raise ValueError for a setting that none of the agents uses.

    Apply this to settings the user gave; a saved config lists every setting, used or not.
    """
    for name in names:
        if name in SETTINGS and not any(applies_to_agent(name, agent) for agent in agents):
            users = ", ".join(SETTINGS[name].agents)
            raise ValueError(
                f"{name} is a setting of {users} and would be ignored by {', '.join(agents)}: leave it out"
            )


def parse_setting(name: str, text: str) -> Any:
    """The value of a setting from text, as typed on a command line; integers may be written 1e6."""
    hint = setting_types()[name]
    if hint == float | None:
        return None if text.lower() == "none" else _number(name, text, float)
    if hint is bool:
        if text.lower() not in ("true", "false", "yes", "no", "1", "0"):
            raise ValueError(f"{name} must be true or false, got {text!r}")
        return text.lower() in ("true", "yes", "1")
    if hint in (int, float):
        return _number(name, text, hint)
    if get_origin(hint) is tuple:
        return tuple(_number(name, part, get_args(hint)[0]) for part in text.split(",") if part)
    return text


def parse_settings(name: str, text: str) -> list[Any]:
    """One or more values of a setting, separated by commas; seeds may be ranges such as ``0-9``."""
    if name == "seed":
        return list(parse_seeds(text))
    hint = setting_types()[name]
    if hint is str or get_origin(hint) is tuple:  # a comma belongs to the value
        return [parse_setting(name, text)]
    values = [parse_setting(name, part.strip()) for part in text.split(",")]
    for value in values:
        if get_origin(hint) is Literal and value not in get_args(hint):
            raise ValueError(f"{name} must be one of {', '.join(get_args(hint))}, got {value!r}")
    return values


def parse_seeds(text: str) -> tuple[int, ...]:
    """Seeds from text such as ``0-9`` or ``0,2,5-7``, in order.

    Example:
        >>> parse_seeds("5-7,0,2")
        (0, 2, 5, 6, 7)
    """
    seeds: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip(), re.ASCII)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last <= _LARGEST or last - first >= _MOST_SEEDS:
            raise ValueError(f"seeds must be integers from 0 to {_LARGEST} such as 0-9 or 0,2,5-7, got {text!r}")
        seeds |= set(range(first, last + 1))
    if len(seeds) > _MOST_SEEDS:
        raise ValueError(f"seeds must be at most {_MOST_SEEDS}, got {len(seeds)}")
    return tuple(sorted(seeds))


def _number(name: str, text: str, kind: type) -> Any:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or (kind is int and value != int(value)):
        raise ValueError(f"{name} must be {'an integer' if kind is int else 'a number'}, got {text!r}")
    return int(value) if kind is int else value


def _checked(name: str, value: Any, hint: Any, bounds: Mapping[str, float]) -> Any:
    """The value, converted to its type; ValueError says what is allowed."""
    if hint == float | None:
        return None if value is None else _checked_number(name, value, float, bounds)
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise ValueError(f"{name} must be one of {', '.join(get_args(hint))}, got {value!r}")
    elif get_origin(hint) is tuple:
        if not isinstance(value, (tuple, list)):
            raise ValueError(f"{name} must be a list of numbers, got {value!r}")
        return tuple(_checked_number(name, part, get_args(hint)[0], bounds) for part in value)
    elif hint is bool or hint is str:
        if not isinstance(value, hint):
            raise ValueError(f"{name} must be {'true or false' if hint is bool else 'text'}, got {value!r}")
    else:
        return _checked_number(name, value, hint, bounds)
    return value


def _checked_number(name: str, value: Any, hint: type, bounds: Mapping[str, float]) -> Any:
    kind = "an integer" if hint is int else "a number"
    value = value.item() if isinstance(value, np.number) else value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1e300 or hint(value) != value:
        raise ValueError(f"{name} must be {kind}, got {value!r}")
    low, high, above = (bounds.get(word) for word in ("low", "high", "above"))
    if (
        (low is not None and value < low)
        or (high is not None and value > high)
        or (above is not None and value <= above)
    ):
        ends = [f">= {low}" if low is not None else "", f"<= {high}" if high is not None else ""]
        ends += [f"> {above}" if above is not None else ""]
        raise ValueError(f"{name} must be {kind} {' and '.join(filter(None, ends))}, got {value}")
    return hint(value)
