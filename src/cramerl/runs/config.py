"""Settings of a training run: one frozen dataclass that gives defaults, help, validation and the saved record.

Counts of steps are agent decisions, over all parallel environments together; in Atari a step is four emulator frames.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import itertools
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self, get_args, get_origin, get_type_hints

import numpy as np

AGENTS = ("dqn", "c51", "s51", "u51", "qr", "hl_gauss")
_DISTRIBUTIONS = tuple(agent for agent in AGENTS if agent != "dqn")
_ON_ATOMS = tuple(agent for agent in _DISTRIBUTIONS if agent != "qr")
ONLY_FOR = {
    "num_atoms": _DISTRIBUTIONS,
    "v_min": _ON_ATOMS,
    "v_max": _ON_ATOMS,
    "mass_penalty": ("s51",),
    "mass_penalties": ("s51",),
    "mass_penalty_scale": ("s51",),
    "normalisation": ("s51",),
    "base_distribution": ("u51",),
    "mean_weight": ("s51", "u51"),
    "dqn_loss": ("dqn",),
    "quantile_threshold": ("qr",),
    "sigma_spacings": ("hl_gauss",),
}
"""Settings that mean something to some agents only, and to which."""
LANES = {"learning_rate": "learning_rates", "mass_penalty": "mass_penalties"}
"""Settings that lanes of one program may differ in, and the setting that has their values."""

_RENAMED = {"base_law": "base_distribution"}  # settings whose name in older runs differs


def _setting(default: Any, group: str, words: str, **bounds: float) -> Any:
    return field(default=default, metadata={"group": group, "help": words, "bounds": bounds})


@dataclass(frozen=True)
class TrainConfig:
    """Settings of a run. Start from `cramerl.preset` and change what you want with ``dataclasses.replace``.

    Example:
        >>> config = TrainConfig(agent="s51", env="Breakout-MinAtar", steps=10_000)
        >>> config.discount
        0.99
    """

    agent: Literal["dqn", "c51", "s51", "u51", "qr", "hl_gauss"] = _setting(
        "s51", "run", "dqn, c51, s51 (the paper's), u51 (ours), qr (QR-DQN) or hl_gauss"
    )
    env: str = _setting(
        "Breakout-MinAtar",
        "run",
        "a gymnax id (Breakout-MinAtar), an Atari game (pong, ALE/Pong-v5) or a Gymnasium id; gym:NAME always takes "
        "Gymnasium's",
    )
    preset: str = _setting("", "run", "name of the preset these settings started from")
    seed: int = _setting(
        0, "run", "of everything random: weights, exploration, sampling, environments", low=0, high=2**31 - 1
    )
    lanes: int = _setting(
        1, "run", "seeds trained at once in one program: seed, seed + 1, ... (gymnax only)", low=1, high=4096
    )
    learning_rates: tuple[float, ...] = _setting(
        (), "run", "several step sizes, commas between: lanes for each of them, in place of learning_rate", above=0
    )
    mass_penalties: tuple[float, ...] = _setting(
        (), "run", "s51: several lambdas, commas between: lanes for each of them, in place of mass_penalty", low=0
    )
    steps: int = _setting(1_000_000, "run", "agent steps of the whole run", low=1, high=2**31 - 1)
    iteration_steps: int = _setting(
        50_000,
        "run",
        "steps between checkpoints; Atari and Gymnasium environments are reset there",
        low=1,
        high=2**31 - 1,
    )
    log_steps: int = _setting(5_000, "run", "steps per line of metrics.jsonl", low=1, high=2**31 - 1)
    checkpoints: Literal["full", "weights", "none"] = _setting(
        "full", "run", "full (replay too: exact resume), weights (small; no resume) or none"
    )
    initial_weights: str = _setting("", "run", "start from the weights of a run or an export, not from random ones")
    tensorboard: bool = _setting(False, "run", "also write TensorBoard files")
    track: Literal["none", "wandb", "trackio"] = _setting(
        "none", "run", "also send metrics to Weights & Biases or Trackio"
    )

    num_envs: int = _setting(
        16, "environment", "parallel environments; the update-to-data ratio does not change", low=1, high=65_536
    )
    sticky: float = _setting(0.0, "environment", "Atari: probability that the last action is repeated", low=0, high=1)
    life_loss_ends: bool = _setting(False, "environment", "Atari: a lost life ends the return for the learner")
    max_episode_steps: int = _setting(
        0, "environment", "time limit in steps, a truncation; 0: the environment's own", low=0, high=10**8
    )
    noop_max: int = _setting(0, "environment", "Atari: most random no-ops at the start", low=0, high=10**4)
    fire_reset: bool = _setting(False, "environment", "Atari: press fire at the start where a game needs it")
    full_action_space: bool = _setting(False, "environment", "Atari: all 18 actions")
    clip_rewards: bool = _setting(False, "environment", "clip rewards to [-1, 1] for the learner; scores stay raw")

    network: Literal["auto", "nature", "nature_same", "minatar", "minatar_strided", "mlp", "linear"] = _setting(
        "auto",
        "learner",
        "auto: nature_same for Atari, minatar for other pictures, mlp for vectors; nature pads VALID, nature_same "
        "SAME; minatar_strided has stride 2",
    )
    hidden_units: tuple[int, ...] = _setting(
        (128, 128), "learner", "units of the mlp's layers, commas between", low=1, high=10**6
    )
    last_layer_scale: float = _setting(1.0, "learner", "factor on the last layer's initial weights", low=0)
    optimiser: Literal["adam", "rmsprop"] = _setting("adam", "learner", "adam, or rmsprop: centred, decay 0.95 (DQN's)")
    learning_rate: float = _setting(1e-4, "learner", "step size of the optimiser", above=0)
    optimiser_epsilon: float = _setting(3.125e-4, "learner", "epsilon of the optimiser", above=0)
    discount: float = _setting(0.99, "learner", "gamma per step", low=0, high=1)
    n_step: int = _setting(1, "learner", "rewards summed before the next state is looked at", low=1, high=100)
    double_q: bool = _setting(False, "learner", "choose the next action with the learning network (double Q-learning)")
    batch_size: int = _setting(32, "learner", "transitions per update", low=1, high=2**20)
    update_period_steps: int = _setting(4, "learner", "steps per update: the update-to-data ratio", low=1, high=10**4)
    target_period_steps: int = _setting(
        1_000, "learner", "steps between copies into the target network", low=1, high=2**31 - 1
    )
    min_replay_steps: int = _setting(5_000, "learner", "steps before the first update", low=1, high=2**31 - 1)
    replay_steps: int = _setting(100_000, "learner", "steps the replay remembers", low=1, high=2**31 - 1)
    replay_on: Literal["auto", "device", "host"] = _setting(
        "auto", "learner", "where frames are kept: the accelerator's memory or the host's; auto: the former if they fit"
    )
    exploration_final: float = _setting(0.05, "learner", "epsilon of epsilon-greedy after the decay", low=0, high=1)
    exploration_decay_steps: int = _setting(
        100_000, "learner", "steps from epsilon 1 (held until the first update) to the final one", low=1, high=2**31 - 1
    )

    num_atoms: int = _setting(51, "head", "atoms of the support, or quantiles of qr", low=2, high=10_000)
    v_min: float = _setting(-10.0, "head", "smallest return of the support")
    v_max: float = _setting(10.0, "head", "largest return of the support")
    mass_penalty: float = _setting(10.0, "head", "s51: lambda, on unit-spaced atoms", low=0)
    mass_penalty_scale: Literal["orthonormal", "total"] = _setting(
        "orthonormal", "head", "s51: lambda/K or lambda times the squared excess of mass"
    )
    normalisation: Literal["after", "before"] = _setting(
        "after", "head", "s51: put the mass of the target right after the backup (the paper's) or before it"
    )
    base_distribution: Literal["uniform", "zero"] = _setting(
        "uniform",
        "head",
        "u51: the distribution that outputs of zero stand for: uniform on the support, or a return of zero",
    )
    mean_weight: float = _setting(
        0.0, "head", "s51, u51: weight of the squared error of the mean, in spacings, beside the Cramér loss", low=0
    )
    dqn_loss: Literal["huber", "squared"] = _setting("huber", "head", "dqn: loss of the temporal difference")
    quantile_threshold: float = _setting(1.0, "head", "qr: threshold of the quantile Huber loss", low=0)
    sigma_spacings: float = _setting(0.75, "head", "hl_gauss: standard deviation, in spacings of the support", above=0)

    eval_episodes: int = _setting(
        0,
        "evaluation",
        "evaluation episodes at the end of each iteration, of the first lane; 0: none",
        low=0,
        high=10**6,
    )
    eval_epsilon: float = _setting(0.001, "evaluation", "epsilon of evaluation episodes", low=0, high=1)

    def __post_init__(self) -> None:
        hints = setting_types()
        for setting in dataclasses.fields(self):
            value = _checked(setting.name, getattr(self, setting.name), hints[setting.name], setting.metadata["bounds"])
            object.__setattr__(self, setting.name, value)
        if not self.hidden_units:
            raise ValueError("hidden_units must be one or more integers, got none")
        if not self.v_min < self.v_max:
            raise ValueError(f"v_min must be less than v_max, got {self.v_min} and {self.v_max}")
        if self.mass_penalty == 0 and self.mass_penalty_scale == "total":
            object.__setattr__(self, "mass_penalty_scale", "orthonormal")  # the same thing
        if self.seed + self.lanes > 2**31:
            raise ValueError(f"seed must be at most {2**31 - self.lanes} with {self.lanes} lanes, got {self.seed}")
        if self.mass_penalties:
            require_agent_settings(["mass_penalties"], [self.agent])
        for name in ("learning_rates", "mass_penalties"):
            if len(set(getattr(self, name))) < len(getattr(self, name)):
                raise ValueError(f"{name} must differ, got {getattr(self, name)}")
        if len(self.lane_settings) > 4096:
            raise ValueError(f"lanes must be at most 4096 in all, got {len(self.lane_settings)}")
        if self.min_replay_steps > self.replay_steps:
            raise ValueError(
                f"min_replay_steps must be at most replay_steps = {self.replay_steps}, got {self.min_replay_steps}"
            )

    @property
    def lane_settings(self) -> list[dict[str, Any]]:
        """What sets each lane apart: its seed, and its learning rate and mass penalty where there are several."""
        seeds = range(self.seed, self.seed + self.lanes)
        axes = {"mass_penalty": self.mass_penalties, "learning_rate": self.learning_rates, "seed": seeds}
        axes = {name: values for name, values in axes.items() if values}
        return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]

    def single_runs(self) -> list[Self]:
        """The runs that the lanes are, each by itself."""
        alone = {"lanes": 1, "learning_rates": (), "mass_penalties": ()}
        return [dataclasses.replace(self, **(alone | lane)) for lane in self.lane_settings]

    def to_json(self) -> dict[str, Any]:
        """The settings as plain values."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in dataclasses.asdict(self).items()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> TrainConfig:
        """Settings from plain values; a name that is no setting is refused."""
        known = [setting.name for setting in dataclasses.fields(cls)]
        values = {_RENAMED.get(name, name): value for name, value in values.items()}
        for name in values:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                raise ValueError(f"{name!r} is no setting{f'; did you mean {near[0]!r}?' if near else ''}")
        return cls(**values)


@functools.cache
def setting_types() -> dict[str, Any]:
    """The type of each setting; resolved once, for a sweep makes settings by the thousand."""
    return get_type_hints(TrainConfig)


def applies_to_agent(name: str, agent: str) -> bool:
    """Whether a setting means something to an agent."""
    return agent in ONLY_FOR.get(name, (agent,))


def require_agent_settings(names: Iterable[str], agents: Collection[str]) -> None:
    """Refuse settings that mean nothing to any of the agents.

    For those that somebody asked for: settings that are read back are all there, whatever the agent.
    """
    for name in names:
        if not any(applies_to_agent(name, agent) for agent in agents):
            meant = ", ".join(ONLY_FOR[name])
            raise ValueError(
                f"{name} is a setting of {meant}, and would be ignored by {', '.join(agents)}: leave it out"
            )


def require_one_or_several(changes: Mapping[str, Any], there: Mapping[str, Any]) -> None:
    """Refuse one value beside several of the same setting, which would be ignored."""
    for one, several in LANES.items():
        values = changes.get(several, there.get(several))
        if one in changes and values:
            raise ValueError(f"{one} and {several} must not both be given, got {changes[one]!r} and {tuple(values)!r}")


def parse_setting(name: str, text: str) -> Any:
    """A setting's value from the words of a command line; integers may be written 1e6."""
    hint = setting_types()[name]
    if hint is bool:
        if text.lower() not in ("true", "false", "yes", "no", "1", "0"):
            raise ValueError(f"{name} must be true or false, got {text!r}")
        return text.lower() in ("true", "yes", "1")
    if hint in (int, float):
        return _number(name, text, hint)
    if get_origin(hint) is tuple:
        return tuple(_number(name, part, get_args(hint)[0]) for part in text.split(",") if part)
    return text


def _number(name: str, text: str, kind: type) -> Any:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or (kind is int and value != int(value)):
        raise ValueError(f"{name} must be {'an integer' if kind is int else 'a number'}, got {text!r}")
    return int(value) if kind is int else value


def _checked(name: str, value: Any, hint: Any, bounds: dict[str, float]) -> Any:
    """The value in its own type, or ValueError with a sentence."""
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


def _checked_number(name: str, value: Any, hint: type, bounds: dict[str, float]) -> Any:
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
