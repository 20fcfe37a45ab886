"""What makes two scores comparable: how the game was played and which episodes were scored."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from cramerl.deep.envs.names import env_family, is_minatar
from cramerl.runs.config import TrainConfig
from cramerl.runs.env_options import options_text

ScoreKind = Literal["training", "evaluation"]
_UNKNOWN = "not known, because logs of other libraries do not say how the game was played and scored"
_ATARI_TIME_LIMIT = 27_000  # steps; the meaning of max_episode_steps = 0 there


@dataclass(frozen=True, order=True)
class ScoringProtocol:
    """Everything that two scores on a game must have in common to be comparable.

    Attributes:
        family: "Atari", "MinAtar" or "other".
        sticky: probability that the last action is repeated.
        life_loss_ends: whether a lost life ends the return for the learner.
        noop_max: largest number of no-ops at the start.
        fire_reset: whether fire is pressed at the start.
        full_action_space: whether all 18 actions are available.
        max_episode_steps: time limit; 0 is the environment's own. Where Atari environments are reset at each
            iteration, no episode scored in training is longer than an iteration.
        clip_rewards: whether the learner sees clipped rewards.
        epsilon: fraction of random actions in the scored episodes, after its decay.
        scores: "training" or "evaluation".
        env_options: arguments of the environment, as `options_text` writes them.
        known: whether the log says how the game was played; if not, only ``family`` and ``scores`` mean something.
    """

    family: str
    sticky: float
    life_loss_ends: bool
    noop_max: int
    fire_reset: bool
    full_action_space: bool
    max_episode_steps: int
    clip_rewards: bool
    epsilon: float
    scores: ScoreKind
    env_options: str = ""
    known: bool = True

    @classmethod
    def unknown(cls, family: str, scores: ScoreKind) -> ScoringProtocol:
        """The protocol of a run whose log does not say how the game was played."""
        return cls(family, 0.0, False, 0, False, False, 0, False, 0.0, scores, known=False)

    @classmethod
    def of(cls, config: TrainConfig, scores: ScoreKind, frames_per_step: int | None = None) -> ScoringProtocol:
        """The protocol of a run; a setting that an environment does not use does not count."""
        minatar = is_minatar(config.env)
        # By its four frames per step if they are known, otherwise by its name.
        atari = not minatar and (env_family(config.env) == "atari" if frames_per_step is None else frames_per_step == 4)
        limit = config.max_episode_steps or (_ATARI_TIME_LIMIT if atari else 0)
        if atari and scores == "training" and config.resets_environments:
            limit = min(limit, config.iteration_steps // config.num_envs)
        return cls(
            family="MinAtar" if minatar else "Atari" if atari else "other",
            sticky=config.sticky if atari or env_family(config.env) == "gymnax" else 0.0,
            life_loss_ends=config.life_loss_ends and atari,
            noop_max=config.noop_max if atari else 0,
            fire_reset=config.fire_reset and atari,
            full_action_space=config.full_action_space and atari,
            max_episode_steps=limit,
            clip_rewards=config.clip_rewards,
            epsilon=config.exploration_final if scores == "training" else config.eval_epsilon,
            scores=scores,
            env_options="" if atari else options_text(config.env_options),
        )

    @property
    def sentence(self) -> str:
        """The whole protocol in words; what a reader would assume anyway is left out."""
        if not self.known:
            return _UNKNOWN
        assumed = ["env_options", "fire_reset", "full_action_space", "clip_rewards"]
        if self.family != "Atari":
            assumed += ["sticky", "life_loss_ends", "noop_max"]
        hidden = [name for name in assumed if not getattr(self, name)] + ["family"] * (self.family == "other")
        return ", ".join(words for name, words in self._words().items() if name not in hidden)

    def difference(self, others: Iterable[ScoringProtocol]) -> str:
        """In words, the parts in which this protocol differs from any of the others."""
        own, others = vars(self), list(others)
        if not self.known:
            return "" if not any(other.known for other in others) else "protocol not known"
        others = [other for other in others if other.known]
        return ", ".join(
            words for name, words in self._words().items() if any(own[name] != vars(other)[name] for other in others)
        )

    def _words(self) -> dict[str, str]:
        limit = f"at most {self.max_episode_steps:,} steps an episode"
        return {
            "family": self.family,
            "env_options": self.env_options or "no arguments of the environment",
            "sticky": f"sticky {self.sticky:g}" if self.sticky else "not sticky",
            "life_loss_ends": "a lost life ends the return" if self.life_loss_ends else "lives do not matter",
            "noop_max": f"up to {self.noop_max} no-ops at the start" if self.noop_max else "no no-op starts",
            "fire_reset": "fire at the start" if self.fire_reset else "no fire at the start",
            "full_action_space": "all 18 actions" if self.full_action_space else "the game's own actions",
            "max_episode_steps": limit if self.max_episode_steps else "the environment's own time limit",
            "clip_rewards": f"learning from {'clipped' if self.clip_rewards else 'raw'} rewards",
            "epsilon": f"epsilon {self.epsilon:g}",
            "scores": f"{self.scores} scores",
        }
