"""Play with trained agents, one environment, one step at a time: the first agent acts, all of them predict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cramerl.deep.envs.names import game_name
from cramerl.measures import clipped_mass
from cramerl.runs import agents
from cramerl.runs.config import TrainConfig
from cramerl.runs.folder import load_config, load_group
from cramerl.watching.recording import (
    Recording,
    Tape,
    View,
    cut_episodes,
    make_view,
    realised_returns,
    return_bounds,
)
from cramerl.watching.screens import FilmedEnv, action_names

# JAX is imported when an agent plays: `cramerl report` imports this module and does without if there are no weights.
if TYPE_CHECKING:
    from cramerl.deep.agent import Agent


class Watched(NamedTuple):
    """A trained agent, its settings, its name on the page, and what must be said of its weights, if anything."""

    name: str
    config: TrainConfig
    agent: Agent
    note: str | None = None


class PlayedStep(NamedTuple):
    """One step: what was seen and done, and what each agent predicted.

    The last three fields have an entry for each agent: its distributions (A, K), their means (A,), and its distribution
    (K,) after the step. A distribution is given by its masses if the atoms are fixed, otherwise by its atoms.
    """

    picture: np.ndarray
    action: int
    reward: float
    score: float
    episode: int
    terminated: bool
    ended: bool
    distributions: list[np.ndarray]
    values: list[np.ndarray]
    next_distributions: list[np.ndarray]


def load_watched(runs: Sequence[str | Path], lanes: Sequence[int] | None = None) -> list[Watched]:
    """Load trained agents of one game; ValueError if they do not go together.

    Args:
        runs: folders of runs or exports.
        lanes: which run of each folder that holds a group; one number counts for all folders, None is lane 0.
    """
    lanes = [0] * len(runs) if lanes is None else list(lanes) * (len(runs) if len(lanes) == 1 else 1)
    if len(lanes) != len(runs):
        raise ValueError(f"lanes must be one number, or one for each of {len(runs)} runs, got {len(lanes)}")
    configs = [load_config(run, lane) for run, lane in zip(runs, lanes, strict=True)]
    _require_same("environment", runs, [game_name(config.env) or config.env for config in configs])
    loaded = [agents.load(Path(run), lane) for run, lane in zip(runs, lanes, strict=True)]
    _require_same("actions", runs, [one.spec.num_actions for one in loaded])
    _require_same("observations", runs, [one.spec.observation_shape for one in loaded])
    kinds, watched = [config.agent for config in configs], {}
    for i, (run, lane, config, one) in enumerate(zip(runs, lanes, configs, loaded, strict=True), start=1):
        name = config.agent
        if kinds.count(name) > 1:
            name += f" ({Path(run).resolve().name}{f', lane {lane}' if len(load_group(run)) > 1 else ''})"
        name += f" {i}" if name in watched else ""
        watched[name] = Watched(name, config, one.agent(run), one.note and one.note.replace(str(run), Path(run).name))
    return list(watched.values())


class Player:
    """Plays episode after episode.

    Args:
        watched: agents; the first one acts, in the environment of its own settings.
        epsilon: fraction of random actions; None for the first agent's ``eval_epsilon``.
        seed: of the environment and the random actions.
        trust_modules: whether the name of the environment may import a module, see ``make_envs``.
    """

    def __init__(
        self, watched: Sequence[Watched], *, epsilon: float | None = None, seed: int = 0, trust_modules: bool = False
    ):
        self.watched, self.config, self.seed = list(watched), watched[0].config, seed
        self.epsilon = self.config.eval_epsilon if epsilon is None else epsilon
        self.env = FilmedEnv(self.config, trust_modules=trust_modules)
        self._predict = [_predictor(one.agent) for one in self.watched]
        try:
            for what in ("num_actions", "observation_shape"):
                trained, found = (getattr(spec, what) for spec in (watched[0].agent.spec, self.env.spec))
                if trained != found:
                    where = f"but {self.env.spec.name} has {what} {found}"
                    raise ValueError(f"the agent was trained with {what} {trained}, {where}")
            self.actions = action_names(self.config, self.env.spec)
        except BaseException:
            self.env.close()
            raise

    def close(self) -> None:
        """Free the environment."""
        self.env.close()

    def steps(self) -> Iterator[PlayedStep]:
        """Play without end. A step is complete when the next one has been played, so the iterator is one ahead."""
        from cramerl.deep.agent import play_steps

        complete: PlayedStep | None = None
        score, episode, ended = 0.0, 0, False
        for _, actions, step in play_steps(self._choose, self.env, epsilon=self.epsilon, seed=self.seed):
            if complete is not None:
                best = zip(self._distributions, self._values, strict=True)
                yield complete._replace(next_distributions=[masses[values.argmax()] for masses, values in best])
                complete = None
            if ended:  # this step only started the next episode
                score, episode, ended = 0.0, episode + 1, False
                continue
            reward, ended = float(step.rewards[0]), bool(step.ended[0])
            done = (int(actions[0]), reward, score, episode, bool(step.terminated[0]), ended)
            complete = PlayedStep(self._picture, *done, self._distributions, self._values, [])
            score += reward

    def _choose(self, observations: np.ndarray) -> np.ndarray:
        """The first agent's best action, (1,); keeps the picture and what all agents predict."""
        self._picture = self.env.picture
        predicted = [predict(observations) for predict in self._predict]
        self._distributions = [np.asarray(distributions)[0] for distributions, _ in predicted]
        self._values = [np.asarray(values)[0] for _, values in predicted]
        return self._values[0].argmax(keepdims=True)


def record(
    watched: Sequence[Watched],
    *,
    episodes: int = 1,
    epsilon: float | None = None,
    seed: int = 0,
    max_steps: int | None = None,
    trust_modules: bool = False,
    on_progress: Callable[[str], None] = lambda text: None,
) -> Recording:
    """Play whole episodes and record every step with the predictions of every agent.

    Args:
        watched: see `load_watched`.
        episodes: how many.
        epsilon: fraction of random actions; None for the first agent's ``eval_epsilon``.
        seed: of the environment and the random actions.
        max_steps: stop after this many steps, even within an episode; None: ``MOST_STEPS`` for each episode.
        trust_modules: whether the name of the environment may import a module, see ``make_envs``.
        on_progress: called now and then with a line about the progress.
    """
    from cramerl.deep.agent import MOST_STEPS

    longest = max(MOST_STEPS, watched[0].config.max_episode_steps + 1) * episodes if max_steps is None else max_steps
    player = Player(watched, epsilon=epsilon, seed=seed, trust_modules=trust_modules)
    steps: list[PlayedStep] = []
    tape: Tape | None = None
    try:
        for step in player.steps():
            if tape is None:
                tape = Tape(step.picture.shape)
            tape.append(step.picture)
            steps.append(step._replace(picture=np.zeros(0, np.uint8)))  # the tape holds it in less memory
            if len(steps) % 100 == 0:
                on_progress(f"{len(steps):,} steps, score {step.score:,.0f}")
            if len(steps) == longest or (step.ended and step.episode == episodes - 1):
                break
    finally:
        player.close()
        on_progress("")
    assert tape is not None
    return assemble(player, steps, tape)


def assemble(player: Player, steps: Sequence[PlayedStep], tape: Tape) -> Recording:
    """A recording from single steps."""
    last, names = steps[-1], [one.name for one in player.watched]
    cut = "cut by the time limit of the game" if last.ended else "cut off before the end of the episode"
    end = "the episode ended" if last.terminated else cut
    facts = [
        f"score {last.score + last.reward:,.6g} after {len(steps):,} steps ({end})",
        f"seed {player.seed}, fraction of random actions {player.epsilon:.3g}",
    ]
    if len(names) > 1:
        predict = "predicts" if len(names) == 2 else "predict"
        facts.append(f"{names[0]} plays; {_listed(names[1:])} {predict} from the same frames")
    facts += [one.note for one in player.watched if one.note is not None]
    action = np.array([one.action for one in steps], np.int32)
    reward = np.array([one.reward for one in steps], np.float32)
    learned = _learned(player.config, reward)
    terminated = np.array([one.terminated for one in steps])
    cut = np.array([*(one.ended for one in steps[:-1]), True])
    return Recording(
        title=f"{_listed(names)} on {player.config.env}",
        unit="step",
        facts=facts,
        actions=player.actions,
        tape=tape,
        palette=player.env.palette.colours,
        legend=player.env.legend,
        caption=player.env.caption,
        action=action,
        views=[_view(one, i, steps, action) for i, one in enumerate(player.watched)],
        reward=reward,
        score=np.array([one.score for one in steps], np.float32),
        episode=np.array([one.episode for one in steps], np.int32),
        realised=realised_returns(learned, terminated, cut, player.config.discount),
        cut=cut_episodes(terminated, cut),
        returns=return_bounds(learned, player.config.discount),
    )


def _predictor(agent: Agent) -> Callable[[np.ndarray], tuple[Any, Any]]:
    """A compiled function from observations to distributions (N, A, K) and values (N, A)."""
    import jax

    from cramerl.deep.learner import in_returns

    @jax.jit
    def predict(params: Any, observations: Any) -> tuple[Any, Any]:
        outputs = agent.network.apply(params, observations)
        atoms, masses = agent.head.distribution(outputs)
        values = in_returns(params, agent.head.values(outputs))
        return atoms if agent.head.support is None else masses, values

    return lambda observations: predict(agent.params, observations)


def _view(watched: Watched, number: int, steps: Sequence[PlayedStep], action: np.ndarray) -> View:
    support, config = watched.agent.support, watched.config
    distributions = np.stack([one.distributions[number] for one in steps])
    values = np.stack([one.values[number] for one in steps])
    if support is None:
        return make_view(watched.name, None, distributions, values, action)
    rewards = _learned(config, np.array([one.reward for one in steps], np.float32))
    discounts = np.where([one.terminated for one in steps], 0, config.discount).astype(np.float32)
    clipped = clipped_mass(support, rewards, discounts, np.stack([one.next_distributions[number] for one in steps]))
    return make_view(watched.name, support.atoms, distributions, values, action)._replace(clipped=clipped)


def _learned(config: TrainConfig, rewards: np.ndarray) -> np.ndarray:
    """Rewards as the learner sees them."""
    return np.clip(rewards, -1, 1) if config.clip_rewards else rewards


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _require_same(what: str, runs: Sequence[str | Path], values: Sequence[object]) -> None:
    for run, value in zip(runs, values, strict=True):
        if value != values[0]:
            raise ValueError(f"runs must be of one game, but {runs[0]} has {what} {values[0]} and {run} has {value}")
