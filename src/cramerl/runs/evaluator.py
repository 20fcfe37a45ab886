"""Evaluation episodes during training, and what they cannot show."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from typing import Any

import jax
import numpy as np

from cramerl.deep.agent import MOST_STEPS, Episode, play_episodes
from cramerl.deep.envs.base import EnvSpec, HostEnvs
from cramerl.deep.envs.names import env_family
from cramerl.deep.networks import Params
from cramerl.runs import build
from cramerl.runs.config import TrainConfig
from cramerl.runs.group import RunGroup

_MOST_ENVS = 16
_FEW_RANDOM = 0.01  # below this fraction of random actions, two games of Atari share hundreds of steps


class Interrupted(Exception):  # noqa: N818 - read as `except Interrupted`
    """A request to stop came while episodes were played."""


class Evaluator:
    """Plays evaluation episodes with the runs of a group.

    Args:
        group: the settings of the runs.
        spec: of their environment.
    """

    def __init__(self, group: RunGroup, spec: EnvSpec):
        self._group, self._config, self._spec = group, group.first, spec
        self._envs: HostEnvs | None = None

    def play(
        self,
        params: Params,
        number: int,
        left_out: Collection[int] = (),
        stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[tuple[int, list[Episode]]]:
        """Play with each run: its lane, and its episodes.

        Runs with the same seed play from the same starts.

        Args:
            params: the weights of all runs, which are the first axis if there are several.
            number: different for each evaluation of a run; games start from it.
            left_out: lanes that do not play.
            stop: asked after each step.

        Raises:
            Interrupted: ``stop`` said so.
        """

        def on_step(*_: Any) -> None:
            if stop():
                raise Interrupted

        config, many = self._config, len(self._group) > 1
        if self._envs is None:
            # Training began by making the same environment, so its name is trusted.
            self._envs = build.make_envs(config, min(config.eval_episodes, _MOST_ENVS), trust_modules=True)
        for lane, run in enumerate(self._group.configs):
            if lane in left_out:
                continue
            own = jax.tree.map(lambda x, lane=lane: x[lane], params) if many else params
            agent = build.make_agent(config, self._spec, own)
            seed = int(np.random.SeedSequence([run.seed, number, 1]).generate_state(1)[0] >> 1)
            episodes = config.eval_episodes
            playing = {"epsilon": config.eval_epsilon, "seed": seed, "max_steps": most_steps(config)}
            yield lane, play_episodes(agent, self._envs, episodes, **playing, on_step=on_step)

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


def most_steps(config: TrainConfig) -> int:
    """Steps after which an episode is cut that has not ended: more than any time limit, which ends it before."""
    return max(MOST_STEPS, config.max_episode_steps + 1)


def warning_of_endless_games(config: TrainConfig, played: list[Episode], limit: int | None = None) -> str | None:
    """What to say if episodes were cut because they did not end; None if they all ended."""
    limit = limit or most_steps(config)
    cut = sum(episode.length >= limit for episode in played)
    if not cut:
        return None
    return (
        f"{cut} of {len(played)} episodes of {config.env} did not end within {limit:,} steps and were cut there, the "
        "next beginning where they stood: the scores are those until then. A time limit (max_episode_steps) ends them"
    )


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
