"""Settings of one run: a frozen dataclass whose fields declare default, help, bounds and everything else about them.

Steps are agent decisions, summed over all parallel environments; in Atari a step is four emulator frames.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_type_hints

from cramerl.deep.envs.names import env_name
from cramerl.runs.checks import checked
from cramerl.runs.setting import AGENTS, Setting, agent_name

_WITH_ATOMS = ("c51", "s51", "u51", "l51", "hl_gauss")
_WITH_LINEAR_TARGETS = ("dqn", "s51", "u51", "l51")
LARGEST = 2**31 - 1
"""The largest integer of a setting."""
_RENAMED = {"base_law": "base_distribution"}  # names of settings in runs of earlier versions


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


@dataclass(frozen=True, repr=False)
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
        "Gymnasium's; Breakout alone is Atari's",
        role="subject",
    )
    preset: str = _run("", text="name of the preset these settings started from", role="record")
    seed: int = _run(
        0,
        text="of everything random: weights, exploration, sampling, environments",
        low=0,
        high=LARGEST,
        role="seed",
        lane=True,
        common=True,
    )
    steps: int = _run(
        1_000_000,
        text="agent steps of the whole run",
        low=1,
        high=LARGEST,
        role="length",
        common=True,
        aliases=("total_steps", "total_timesteps"),
    )
    iteration_steps: int = _run(
        50_000,
        text="steps between checkpoints; with full ones, Atari and Gymnasium environments are reset there",
        low=1,
        high=LARGEST,
        role="pace",
    )
    log_steps: int = _run(5_000, text="steps per line of metrics.jsonl", low=1, high=LARGEST, role="pace")
    checkpoints: Literal["full", "weights", "none"] = _run(
        "full", text="full (replay too: exact resume), weights (small; no resume) or none", role="record"
    )
    initial_weights: str = _run(
        "", text="start from the weights of a run or an export, not from random ones", role="start"
    )
    tensorboard: bool = _run(False, text="also write TensorBoard files", role="record")
    track: Literal["none", "wandb", "trackio"] = _run(
        "none", text="also send metrics to Weights & Biases or Trackio", role="record", common=True
    )

    env_options: tuple[tuple[str, bool | int | float | str | None], ...] = _environment(
        (),
        text="an argument of the environment, such as is_slippery=false; may be given several times",
        families=("gymnax", "gymnasium"),
        scoring="protocol",
    )
    num_envs: int = _environment(
        16,
        text="parallel environments; the update-to-data ratio does not change",
        low=1,
        high=65_536,
        common=True,
        aliases=("n_envs",),
    )
    sticky: float = _environment(
        0.0,
        text="Atari, gymnax: probability that the last action is taken again in place of the one chosen (MinAtar: 0.1)",
        low=0,
        high=1,
        families=("atari", "gymnax"),
        scoring="protocol",
    )
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
        (128, 128),
        text="units of the mlp's layers, separated by commas",
        low=1,
        high=10**6,
        near=("hidden_sizes", "layers", "net_arch"),
    )
    last_layer_scale: float = _learner(1.0, text="factor on the last layer's initial weights", low=0)
    optimiser: Literal["adam", "rmsprop"] = _learner(
        "adam", text="adam, or rmsprop: centred, decay 0.95 (DQN's)", aliases=("optimizer",)
    )
    learning_rate: float = _learner(
        1e-4, text="step size of the optimiser", above=0, lane=True, scoring="tuned", common=True, aliases=("lr",)
    )
    optimiser_epsilon: float = _learner(
        3.125e-4, text="epsilon of the optimiser", above=0, aliases=("optimizer_epsilon",)
    )
    max_gradient_norm: float = _learner(
        0.0, text="scale a gradient down to this global norm if it is larger; 0: never", low=0, near=("max_grad_norm",)
    )
    discount: float = _learner(0.99, text="gamma per step", low=0, high=1, common=True, aliases=("gamma",))
    n_step: int = _learner(
        1, text="rewards summed before the next state is looked at", low=1, high=100, common=True, near=("n_steps",)
    )
    q_lambda: float = _learner(
        0.0,
        text="dqn, s51, u51, l51: lambda of Q(lambda) targets, which look up to n_step steps ahead; 0: n-step targets",
        low=0,
        high=1,
        agents=_WITH_LINEAR_TARGETS,
        scoring="variant",
    )
    q_lambda_greedy: float = _learner(
        1.0,
        text="Q(lambda): probability of the best action in the target policy; otherwise, the action that was taken",
        low=0,
        high=1,
        agents=_WITH_LINEAR_TARGETS,
        scoring="variant",
    )
    double_q: bool = _learner(
        False,
        text="choose the next action with the learning network (double Q-learning)",
        common=True,
        near=("double", "double_dqn"),
    )
    batch_size: int = _learner(32, text="transitions per update", low=1, high=2**20, near=("batch", "minibatch_size"))
    update_period_steps: int = _learner(
        4,
        text="steps per update: the update-to-data ratio",
        low=1,
        high=10**4,
        near=("train_freq", "train_frequency", "update_period"),
    )
    target_period_steps: int = _learner(
        1_000,
        text="steps between copies into the target network",
        low=1,
        high=LARGEST,
        near=("target_network_frequency", "target_update", "target_update_interval", "target_update_period"),
    )
    min_replay_steps: int = _learner(
        5_000, text="steps before the first update", low=1, high=LARGEST, aliases=("learning_starts",)
    )
    replay_steps: int = _learner(
        100_000,
        text="steps the replay remembers",
        low=1,
        high=LARGEST,
        aliases=("buffer_size",),
        near=("replay_size", "replay_capacity"),
    )
    replay_on: Literal["auto", "device", "host"] = _learner(
        "auto",
        text="where frames are kept: the accelerator's memory or the host's; auto: the former if they fit",
        role="record",
    )
    exploration_final: float = _learner(
        0.05,
        text="epsilon of epsilon-greedy after the decay",
        low=0,
        high=1,
        scoring="protocol",
        common=True,
        near=("epsilon", "eps", "end_e", "exploration_final_eps"),
    )
    exploration_decay_steps: int = _learner(
        100_000,
        text="steps from epsilon 1 (held until the first update) to the final one",
        low=1,
        high=LARGEST,
        near=("epsilon_decay", "exploration_fraction"),
    )

    num_atoms: int = _head(
        51,
        text="atoms of the support, or quantiles of qr",
        low=2,
        high=10_000,
        agents=AGENTS[1:],
        common=True,
        aliases=("atoms", "n_atoms"),
        near=("n_quantiles", "num_quantiles"),
    )
    v_min: float | None = _head(
        None,
        text="smallest return of the support; none: found and widened while learning",
        agents=_WITH_ATOMS,
        common=True,
        aliases=("vmin",),
    )
    v_max: float | None = _head(
        None, text="largest return of the support; as v_min", agents=_WITH_ATOMS, common=True, aliases=("vmax",)
    )
    mass_penalty: float = _head(
        10.0,
        text="s51: lambda, on unit-spaced atoms",
        low=0,
        agents=("s51",),
        lane=True,
        scoring="tuned",
        near=("lambda", "penalty"),
    )
    mass_penalty_scale: Literal["orthonormal", "total"] = _head(
        "orthonormal", text="s51: lambda/K or lambda times the squared excess of mass", agents=("s51",), scoring="tuned"
    )
    normalisation: Literal["after", "before"] = _head(
        "after",
        text="s51: correct the target's mass after the backup (the paper's way) or before it",
        agents=("s51",),
        scoring="tuned",
        aliases=("normalization",),
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
    mode_exponent: float = _head(
        0.0,
        text="u51: outputs times this power of the Cramér metric's eigenvalues; above 0, narrow modes learn slower",
        low=0,
        high=1,
        agents=("u51",),
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
        common=True,
        near=("n_eval_episodes",),
    )
    eval_period_steps: int = _evaluation(
        0, text="steps between evaluations, at log lines; 0: at the end of each iteration", low=0, high=LARGEST
    )
    eval_epsilon: float = _evaluation(0.001, text="epsilon of evaluation episodes", low=0, high=1, scoring="protocol")

    def __post_init__(self) -> None:
        object.__setattr__(self, "agent", agent_name(self.agent))
        object.__setattr__(self, "env", env_name(self.env))
        for name, setting in SETTINGS.items():
            value = checked(name, getattr(self, name), setting_types()[name], setting.bounds)
            object.__setattr__(self, name, value)
        if not self.hidden_units:
            raise ValueError("hidden_units must be one or more integers, got none")
        if (self.v_min is None) != (self.v_max is None):
            raise ValueError(f"v_min and v_max must be given together or not at all, got {self.v_min} and {self.v_max}")
        if self.v_min is not None and self.v_max is not None and not self.v_min < self.v_max:
            raise ValueError(f"v_min must be less than v_max, got {self.v_min} and {self.v_max}")
        if self.mass_penalty == 0 and self.mass_penalty_scale == "total":
            object.__setattr__(self, "mass_penalty_scale", "orthonormal")  # without a penalty the scales are the same
        if applies_to_agent("q_lambda", self.agent):
            self._check_q_lambda()
        if self.eval_period_steps and not self.eval_episodes:
            raise ValueError(
                f"eval_episodes must be at least 1 with eval_period_steps = {self.eval_period_steps}, or nothing is "
                "evaluated, got 0"
            )
        if self.checkpoints == "full":
            object.__setattr__(self, "environment_resets", "needed")  # at every iteration, which is the same
        if self.min_replay_steps > self.replay_steps:
            raise ValueError(
                f"min_replay_steps must be at most replay_steps = {self.replay_steps}, got {self.min_replay_steps}"
            )

    def _check_q_lambda(self) -> None:
        if self.q_lambda > 0 and self.n_step == 1:
            raise ValueError(
                "n_step must be at least 2 with q_lambda, because it is how many steps the targets look ahead "
                "(5, for instance), got 1"
            )
        if self.q_lambda == 0 and self.q_lambda_greedy != 1:
            raise ValueError(f"q_lambda_greedy needs q_lambda above 0, got {self.q_lambda_greedy} and q_lambda 0")

    @property
    def resets_environments(self) -> bool:
        """Whether Atari and Gymnasium environments are reset at the end of each iteration, which cuts episodes."""
        return self.checkpoints == "full" or self.environment_resets == "iteration"

    def to_json(self) -> dict[str, Any]:
        """The settings as plain values."""
        plain = {name: list(v) if isinstance(v, tuple) else v for name, v in dataclasses.asdict(self).items()}
        return plain | {"env_options": dict(self.env_options)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> TrainConfig:
        """Settings from plain values. An unknown name is an error; a missing setting has its default."""
        values = {_RENAMED.get(name, name): value for name, value in values.items()}
        for name in values:
            if name not in SETTINGS:
                meant = meant_setting(name)
                raise ValueError(f"{name!r} is not a setting{f'; did you mean {meant!r}?' if meant else ''}")
        return cls(**values)

    def __repr__(self) -> str:
        """What makes it again: its preset and what differs from that, or else from the defaults."""
        from cramerl.runs.presets import PRESETS, preset  # which starts from this module

        named = self.preset in PRESETS
        base = preset(self.preset, self.agent, self.env) if named else TrainConfig(self.agent, self.env, self.preset)
        values = {name: getattr(self, name) for name in SETTINGS if getattr(self, name) != getattr(base, name)}
        changes = [f"{name}={value!r}" for name, value in values.items()]
        if named:
            return f"preset({', '.join([repr(self.preset), repr(self.agent), repr(self.env), *changes])})"
        words = [f"agent={self.agent!r}", f"env={self.env!r}", *([f"preset={self.preset!r}"] if self.preset else [])]
        return f"TrainConfig({', '.join([*words, *changes])})"


SETTINGS: dict[str, Setting] = {one.name: one.metadata["setting"] for one in dataclasses.fields(TrainConfig)}
"""What each setting means, by name."""
DEFAULTS: dict[str, Any] = {one.name: one.default for one in dataclasses.fields(TrainConfig)}
ALIASES: dict[str, str] = {alias: name for name, setting in SETTINGS.items() for alias in setting.aliases}
"""Other names of settings, with the name that they stand for."""
LANE_SETTINGS: tuple[str, ...] = tuple(name for name, setting in SETTINGS.items() if setting.lane)
"""The settings in which runs of one group may differ."""


@functools.cache
def setting_types() -> dict[str, Any]:
    """The type of each setting. Cached, because a sweep creates configs by the thousand."""
    return get_type_hints(TrainConfig)


def without_aliases(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings under their own names; ValueError if one is given under two names."""
    found: dict[str, Any] = {}
    for word, value in values.items():
        name = ALIASES.get(word, word)
        if name in found:
            raise ValueError(f"{name} must be given once, got it under two names")
        found[name] = value
    return found


def meant_setting(word: str) -> str | None:
    """The setting that somebody means by a word, if that can be guessed.

    Example:
        >>> meant_setting("lr"), meant_setting("target-update"), meant_setting("learning_rates")
        ('learning_rate', 'target_period_steps', 'learning_rate')
    """
    word = word.replace("-", "_").lower()
    for name, setting in SETTINGS.items():
        if word in (name, *setting.aliases, *setting.near):
            return name
    return next(iter(difflib.get_close_matches(word, SETTINGS, n=1)), None)


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
