"""What makes two scores comparable: how the game was played and which episodes were scored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from cramerl.deep.envs.names import env_family, is_minatar

ScoreKind = Literal["training", "evaluation"]
# Settings a protocol speaks of; they set no variants of an agent apart.
PROTOCOL_SETTINGS = (
    "sticky",
    "life_loss_ends",
    "noop_max",
    "fire_reset",
    "full_action_space",
    "max_episode_steps",
    "clip_rewards",
    "exploration_final",
    "eval_epsilon",
)
_ATARI_TIME_LIMIT = 27_000  # steps; what 0 stands for there


@dataclass(frozen=True, order=True)
class Protocol:
    """The settings that make scores of one game comparable or not.

    Attributes:
        family: "Atari", "MinAtar" or "other".
        sticky: probability of repeating the last action.
        life_loss_ends: whether a lost life ends the return for the learner.
        noop_max: most no-ops at the start.
        fire_reset: whether fire is pressed at the start.
        full_action_space: whether all 18 actions are there.
        max_episode_steps: time limit; 0 is the environment's own. Atari's environments begin anew with every iteration:
            no episode that is scored in training is longer than that.
        clip_rewards: whether the learner sees clipped rewards.
        epsilon: share of random actions in the episodes that are scored, after its decay.
        scores: "training" or "evaluation".
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

    @classmethod
    def of(cls, settings: Mapping[str, Any], scores: ScoreKind, frames_per_step: float | None = None) -> Protocol:
        """The protocol that settings stand for; Atari's own settings are left out elsewhere, where they do nothing."""
        family = family_of(settings["env"], frames_per_step)
        atari = family == "Atari"
        limit = int(settings["max_episode_steps"]) or (_ATARI_TIME_LIMIT if atari else 0)
        if atari and scores == "training":
            limit = min(limit, int(settings["iteration_steps"]) // int(settings["num_envs"]))
        return cls(
            family=family,
            sticky=float(settings["sticky"]) if atari else 0.0,
            life_loss_ends=bool(settings["life_loss_ends"]) and atari,
            noop_max=int(settings["noop_max"]) if atari else 0,
            fire_reset=bool(settings["fire_reset"]) and atari,
            full_action_space=bool(settings["full_action_space"]) and atari,
            max_episode_steps=limit,
            clip_rewards=bool(settings["clip_rewards"]),
            epsilon=float(settings["exploration_final" if scores == "training" else "eval_epsilon"]),
            scores=scores,
        )

    @property
    def words(self) -> dict[str, str]:
        """Each part in words; empty where it says nothing."""
        atari = self.family == "Atari"
        limit = f"at most {self.max_episode_steps:,} steps an episode"
        return {
            "family": self.family if self.family != "other" else "",
            "sticky": (f"sticky {self.sticky:g}" if self.sticky else "not sticky") if atari else "",
            "life_loss_ends": ("a lost life ends the return" if self.life_loss_ends else "lives do not matter")
            if atari
            else "",
            "noop_max": (f"up to {self.noop_max} no-ops at the start" if self.noop_max else "no no-op starts")
            if atari
            else "",
            "fire_reset": "fire at the start" if self.fire_reset else "",
            "full_action_space": "all 18 actions" if self.full_action_space else "",
            "max_episode_steps": limit if self.max_episode_steps else "the environment's own time limit",
            "clip_rewards": "learning from clipped rewards" if self.clip_rewards else "",
            "epsilon": f"epsilon {self.epsilon:g}",
            "scores": f"{self.scores} scores",
        }

    @property
    def sentence(self) -> str:
        """The whole protocol in words."""
        return ", ".join(filter(None, self.words.values()))

    def difference(self, others: Iterable[Protocol]) -> str:
        """Only the parts in which it differs from one of ``others``, in words."""
        others = list(others)
        names = [
            field.name
            for field in fields(self)
            if any(getattr(self, field.name) != getattr(other, field.name) for other in others)
        ]
        off = {"clip_rewards": "learning from raw rewards", "fire_reset": "no fire at the start"}
        off["full_action_space"] = "the game's own actions"
        return ", ".join(self.words[name] or off.get(name, self.family) for name in names)


def family_of(env: str, frames_per_step: float | None = None) -> str:
    """Atari (by its four frames a step where that is known, else by its name), MinAtar or other."""
    if is_minatar(env):
        return "MinAtar"
    atari = env_family(env) == "atari" if frames_per_step is None else frames_per_step == 4
    return "Atari" if atari else "other"
