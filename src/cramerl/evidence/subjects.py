"""What the evidence needs to know of a run, whichever library trained it: agent, game, seed and settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cramerl.runs.config import AGENTS, SETTINGS, TrainConfig, applies_to_agent

_LEARNED_WITH = tuple(
    name
    for name, setting in sorted(SETTINGS.items())
    if setting.role in ("learning", "start") and setting.scoring != "protocol"
)


@dataclass(frozen=True)
class Subject:
    """Who learned what.

    Attributes:
        agent: the agent.
        env: its environment.
        seed: the seed; in logs of other libraries it may be a word.
        steps: the steps that the run should do, None where the log does not say.
        config: the settings, None for a run of another library.
    """

    agent: str
    env: str
    seed: int | str
    steps: int | None = None
    config: TrainConfig | None = None

    @classmethod
    def of(cls, config: TrainConfig) -> Subject:
        """The subject of a run of cramerl."""
        return cls(config.agent, config.env, config.seed, config.steps, config)

    @property
    def learned_with(self) -> dict[str, Any]:
        """The settings, by name, that change what is learned and are not part of the protocol; none if not known."""
        if self.config is None:
            return {}
        return {name: getattr(self.config, name) for name in _LEARNED_WITH if applies_to_agent(name, self.agent)}


def agent_order(agent: str) -> tuple[int, str]:
    """Sorts agents: those of cramerl in their order, then others by name."""
    return (AGENTS.index(agent), "") if agent in AGENTS else (len(AGENTS), agent)


def seed_order(seed: int | str) -> tuple[bool, int, str]:
    """Sorts seeds: numbers by size, then words."""
    return (False, seed, "") if isinstance(seed, int) else (True, 0, seed)
