"""Evaluation episodes during training, and what they cannot show."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import Any

import jax
import numpy as np

from cramerl.deep.agent import Episode, play_episodes
from cramerl.deep.envs.base import EnvSpec, HostEnvs
from cramerl.deep.envs.names import env_family
from cramerl.deep.networks import Params
from cramerl.runs import build
from cramerl.runs.config import TrainConfig
from cramerl.runs.group import RunGroup

_MOST_ENVS = 16
_FEW_RANDOM = 0.01  # below this fraction of random actions, two games of Atari share hundreds of steps


class Evaluator:
    """Plays evaluation episodes with the runs of a group.

    Args:
        group: the settings of the runs.
        spec: of their environment.
    """

    def __init__(self, group: RunGroup, spec: EnvSpec):
        self._group, self._config, self._spec = group, group.first, spec
        self._envs: HostEnvs | None = None

    def play(self, params: Params, number: int, left_out: Collection[int] = ()) -> Iterator[tuple[int, list[Episode]]]:
        """Play with each run: its lane, and its episodes.

        Runs with the same seed play from the same starts.

        Args:
            params: the weights of all runs, which are the first axis if there are several.
            number: different for each evaluation of a run; games start from it.
            left_out: lanes that do not play.
        """
        config, many = self._config, len(self._group) > 1
        if self._envs is None:
            self._envs = build.make_envs(config, min(config.eval_episodes, _MOST_ENVS))
        for lane, run in enumerate(self._group.configs):
            if lane in left_out:
                continue
            own = jax.tree.map(lambda x, lane=lane: x[lane], params) if many else params
            agent = build.make_agent(config, self._spec, own)
            seed = int(np.random.SeedSequence([run.seed, number, 1]).generate_state(1)[0] >> 1)
            episodes = config.eval_episodes
            yield lane, play_episodes(agent, self._envs, episodes, epsilon=config.eval_epsilon, seed=seed)

    def close(self) -> None:
        """Close the environments."""
        if self._envs is not None:
            self._envs.close()
            self._envs = None


def evaluation_line(heading: dict[str, Any], played: list[Episode]) -> dict[str, Any]:
    """The line of the log for one run's evaluation episodes."""
    count = len(played)
    return heading | {
        "eval/episodic_return": math.fsum(episode.score for episode in played) / count,
        "eval/episodes": count,
        "eval/episodic_length": sum(episode.length for episode in played) / count,
    }


def warning_of_one_game(config: TrainConfig, episodes: int, epsilon: float) -> str | None:
    """What to say if the episodes that an agent will play are nearly one game; None if they are not.

    Settings decide, not scores: different games may have equal scores, at a time limit for example. An emulator starts
    alike every time, and only no-ops, sticky actions and random actions make games differ.
    """
    alike = env_family(config.env) == "atari" and config.sticky == 0 and config.noop_max <= 1
    if episodes < 2 or not alike or epsilon >= _FEW_RANDOM:
        return None
    return (
        f"{episodes} episodes of {config.env} without sticky actions and no-ops, with epsilon {epsilon:g}, are nearly "
        f"one game: their spread says little. Train with noop_max 30 or sticky 0.25, or play with an epsilon "
        f"(eval_epsilon) of {_FEW_RANDOM:g} or more"
    )
