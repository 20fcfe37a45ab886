"""Playing with trained agents, one environment, one step at a time: the first acts, all of them judge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cramerl.deep.envs.names import game_name
from cramerl.runs import agents, build
from cramerl.runs.config import TrainConfig
from cramerl.runs.folder import load_config
from cramerl.watch.recording import Recording, View, clipped_mass, make_view, realised_returns
from cramerl.watch.screens import action_names, make_screen
from cramerl.watch.tape import Tape

if TYPE_CHECKING:
    from cramerl.deep.agent import Agent
    from cramerl.deep.envs.base import EnvSpec


class Watched(NamedTuple):
    """A trained agent with its settings and the name it goes by."""

    name: str
    config: TrainConfig
    agent: Agent


class Moment(NamedTuple):
    """One step: what was seen and done, and what each agent predicted.

    For each agent: its distributions (A, K), their values (A,), and its next distribution (K,). A distribution is
    given by its masses where the atoms are fixed, else by its places.
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
    """Load trained agents, all of one game, or say which does not fit.

    Args:
        runs: folders of runs or exports.
        lanes: which lane of each, where runs have several; one number stands for all of them, None for the first.
    """
    lanes = [0] * len(runs) if lanes is None else list(lanes) * (len(runs) if len(lanes) == 1 else 1)
    if len(lanes) != len(runs):
        raise ValueError(f"--lane must be one number or one for each of {len(runs)} runs, got {len(lanes)}")
    configs = [load_config(run) for run in runs]
    loaded = [agents.load_agent(run, lane=lane) for run, lane in zip(runs, lanes, strict=True)]
    for run, config, agent in zip(runs[1:], configs[1:], loaded[1:], strict=True):
        _require_same_game(str(runs[0]), configs[0], loaded[0].spec, str(run), config, agent.spec)
    return [Watched(*one) for one in zip(_names(runs, configs, lanes), configs, loaded, strict=True)]


def _names(runs: Sequence[str | Path], configs: Sequence[TrainConfig], lanes: Sequence[int]) -> list[str]:
    """Agents by their kind; where there are several of a kind by folder and lane too, at last by number."""
    kinds, shown = [config.agent for config in configs], []
    for i, (run, config, lane) in enumerate(zip(runs, configs, lanes, strict=True)):
        where = Path(run).resolve().name + (f", lane {lane}" if len(config.lane_settings) > 1 else "")
        name = config.agent if kinds.count(config.agent) == 1 else f"{config.agent} ({where})"
        shown.append(name if name not in shown else f"{name} {i + 1}")
    return shown


class Player:
    """Plays on and on: the next episode begins after the last.

    Args:
        watched: agents; the first one acts, in the environment of its own settings.
        epsilon: share of random actions; None for the first one's ``eval_epsilon``.
        seed: of the environment and the random actions.
    """

    def __init__(self, watched: Sequence[Watched], *, epsilon: float | None = None, seed: int = 0):
        self.watched, self.config, self.seed = list(watched), watched[0].config, seed
        self.epsilon = self.config.eval_epsilon if epsilon is None else epsilon
        self._judges = [_judge(one.agent) for one in self.watched]
        self._envs = build.make_envs(self.config, 1)
        try:
            self.spec = self._envs.spec
            _require_fit(self.watched[0], self.spec)
            self.actions = action_names(self.config, self.spec)
            self.screen = make_screen(self.config, self.spec)
            self._begin()
        except BaseException:
            self._envs.close()
            raise

    def close(self) -> None:
        """Free the environment."""
        self._envs.close()

    def advance(self) -> Moment:
        """Take one step."""
        if self._over:
            self._next_episode()
        picture, distributions, values = self._picture, self._distributions, self._values
        score, episode = self._score, self._episode
        action = self._choose()
        step = self._step(action)
        self._score += float(step.rewards[0])
        self._over = bool(step.ended[0])
        following = [
            distribution[value.argmax()] for distribution, value in zip(self._distributions, self._values, strict=True)
        ]
        return Moment(
            picture,
            action,
            float(step.rewards[0]),
            score,
            episode,
            bool(step.terminated[0]),
            self._over,
            distributions,
            values,
            following,
        )

    def _begin(self) -> None:
        from cramerl.deep.envs.base import FrameStack

        self._rng = np.random.default_rng(np.random.SeedSequence([self.seed, 1]))
        frames = self._envs.reset(self.seed)
        self._stack = FrameStack(self.spec, 1)
        self._picture = self.screen.start(self.seed, frames[0])
        self._see(frames, np.ones(1, bool))
        self._score, self._episode, self._over = 0.0, 0, False

    def _next_episode(self) -> None:
        """The step after an episode's end ignores the action and returns the next one's first frame."""
        self._step(0)
        self._score, self._episode, self._over = 0.0, self._episode + 1, False

    def _step(self, action: int) -> Any:
        step = self._envs.step(np.array([action], np.int32))
        self._picture = self.screen.after(action, step.frames[0])
        self._see(step.frames, step.first)
        return step

    def _see(self, frames: np.ndarray, first: np.ndarray) -> None:
        observations = self._stack.push(frames, first)
        judged = [judge(one.agent.params, observations) for judge, one in zip(self._judges, self.watched, strict=True)]
        self._distributions = [np.asarray(distribution)[0] for distribution, _ in judged]
        self._values = [np.asarray(values)[0] for _, values in judged]

    def _choose(self) -> int:
        other = int(self._rng.integers(0, self.spec.num_actions))
        return other if self._rng.random() < self.epsilon else int(self._values[0].argmax())


def record(
    watched: Sequence[Watched],
    *,
    episodes: int = 1,
    epsilon: float | None = None,
    seed: int = 0,
    max_steps: int | None = None,
    on_progress: Callable[[str], None] = lambda words: None,
) -> Recording:
    """Play whole episodes and keep what every agent said of every step.

    Args:
        watched: see `load_watched`.
        episodes: how many.
        epsilon: share of random actions; None for the first run's ``eval_epsilon``.
        seed: of the environment and the random actions.
        max_steps: stop after so many, wherever the episode stands.
        on_progress: is told how far it is.
    """
    player = Player(watched, epsilon=epsilon, seed=seed)
    tape, moments = Tape(player.screen.size), []
    try:
        while not moments or moments[-1].episode < episodes - 1 or not moments[-1].ended:
            if len(moments) == max_steps:
                break
            moment = player.advance()
            tape.append(moment.picture)
            moments.append(moment._replace(picture=np.zeros(0, np.uint8)))  # the tape has it, in less memory
            if len(moments) % 100 == 0:
                on_progress(f"{len(moments):,} steps, score {moment.score:,.0f}")
    finally:
        player.close()
        on_progress("")
    return assemble(player, moments, tape)


def assemble(player: Player, moments: Sequence[Moment], tape: Tape) -> Recording:
    """A recording from single steps."""
    action = np.array([one.action for one in moments], np.int32)
    reward = np.array([one.reward for one in moments], np.float32)
    terminated = np.array([one.terminated for one in moments])
    cut = np.array([one.ended for one in moments])
    cut[-1] = True
    views = [_view(one, i, moments, action) for i, one in enumerate(player.watched)]
    came = realised_returns(_learned(player.config, reward), terminated, cut, player.config.discount)
    return Recording(
        title=f"{_listed([one.name for one in player.watched])} on {player.config.env}",
        unit="step",
        facts=_facts(player, moments),
        actions=player.actions,
        tape=tape,
        palette=player.screen.palette,
        legend=player.screen.legend,
        caption=player.screen.caption,
        action=action,
        reward=reward,
        score=np.array([one.score for one in moments], np.float32),
        episode=np.array([one.episode for one in moments], np.int32),
        came=came,
        views=views,
        labels=[],
    )


def _judge(agent: Agent) -> Callable[..., Any]:
    """Distributions (N, A, K), by masses or places, and values (N, A) of observations, compiled together."""
    import jax

    def judge(params: Any, observations: Any) -> tuple[Any, Any]:
        outputs = agent.network.apply(params, observations)
        places, masses = agent.head.distribution(outputs)
        return places if agent.head.support is None else masses, agent.head.values(outputs)

    return jax.jit(judge)


def _view(watched: Watched, which: int, moments: Sequence[Moment], action: np.ndarray) -> View:
    support, config = watched.agent.head.support, watched.config
    distributions, values = (
        np.stack([one.distributions[which] for one in moments]),
        np.stack([one.values[which] for one in moments]),
    )
    if support is None:
        return make_view(watched.name, config.agent, None, distributions, values, action)
    rewards = _learned(config, np.array([one.reward for one in moments], np.float32))
    discounts = np.where([one.terminated for one in moments], 0, config.discount)
    clipped = clipped_mass(
        support.atoms, rewards, discounts, np.stack([one.next_distributions[which] for one in moments])
    )
    return make_view(watched.name, config.agent, support.atoms, distributions, values, action)._replace(clipped=clipped)


def _learned(config: TrainConfig, rewards: np.ndarray) -> np.ndarray:
    """Rewards as the learner was given them."""
    return np.clip(rewards, -1, 1) if config.clip_rewards else rewards


def _facts(player: Player, moments: Sequence[Moment]) -> list[str]:
    last = moments[-1]
    how = "the end of the episode" if last.ended else "cut before the end of the episode"
    facts = [f"score {last.score + last.reward:,.6g} after {len(moments):,} steps ({how})"]
    facts.append(f"seed {player.seed}, {player.epsilon:.3g} of the actions at random")
    if len(player.watched) > 1:
        others = _listed([one.name for one in player.watched[1:]])
        facts.append(
            f"{player.watched[0].name} plays; {others} judge{'s' if len(player.watched) == 2 else ''} the same"
        )
    return facts


def _listed(names: list[str]) -> str:
    return " and ".join([*([", ".join(names[:-1])] if len(names) > 1 else []), names[-1]])


def _game(config: TrainConfig) -> str:
    return game_name(config.env) or config.env


def _require_same_game(
    first: str, config: TrainConfig, spec: EnvSpec, other: str, its_config: TrainConfig, its_spec: EnvSpec
) -> None:
    for what, mine, its in (
        ("actions", spec.num_actions, its_spec.num_actions),
        ("observations", spec.observation_shape, its_spec.observation_shape),
        ("environment", _game(config), _game(its_config)),
    ):
        if mine != its:
            raise ValueError(
                f"runs to watch together must be of one game: {first} has {what} {mine}, {other} has {its}"
            )


def _require_fit(watched: Watched, spec: EnvSpec) -> None:
    trained = watched.agent.spec
    for what in ("num_actions", "observation_shape"):
        was, now = getattr(trained, what), getattr(spec, what)
        if was != now:
            raise ValueError(f"agent and environment do not match: {spec.name} has {what} {now}, the agent's was {was}")
