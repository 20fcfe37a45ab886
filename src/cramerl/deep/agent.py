"""A trained agent: what it predicts for an observation, how it acts, and episodes it plays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from html import escape
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cramerl import _svg
from cramerl.deep.envs.base import EnvSpec, FrameStack, HostEnvs, Step
from cramerl.deep.heads import Head
from cramerl.deep.learner import in_returns
from cramerl.deep.networks import Network, Params
from cramerl.supports import Support

_MOST_SHOWN = 4  # observations, in a notebook


class Distributions(NamedTuple):
    """Return distributions, one for each of N observations and A actions: ``atoms, masses = distributions``.

    Attributes:
        atoms: (N, A, K); a fixed support is repeated.
        masses: (N, A, K).
    """

    atoms: np.ndarray
    masses: np.ndarray

    def __repr__(self) -> str:
        number, actions, size = self.masses.shape
        ends = f"from {self.atoms.min():.4g} to {self.atoms.max():.4g}" if self.atoms.size else "none"
        return f"Distributions({number} observations x {actions} actions x {size} atoms, {ends})"

    def _repr_html_(self) -> str:
        """A table of drawings: a row for each of the first observations, a column for each action."""
        atoms = np.broadcast_to(self.atoms, self.masses.shape)
        number, actions, _ = self.masses.shape
        rows = [
            [str(i), *(_svg.bars(atoms[i, a], self.masses[i, a]) for a in range(actions))]
            for i in range(min(number, _MOST_SHOWN))
        ]
        header = ["observation", *(f"action {a}" for a in range(actions))]
        return f"<div>{escape(repr(self))}</div>{_svg.table(header, rows)}"


@dataclass(frozen=True, repr=False)
class Agent:
    """A head on a network with its weights.

    Attributes:
        head: what the outputs mean.
        network: from observations to outputs.
        params: weights.
        spec: the environment it was trained in.
    """

    head: Head
    network: Network
    params: Params
    spec: EnvSpec

    def __repr__(self) -> str:
        return f"Agent({type(self.head).__name__} on {self.spec.name}, {self.spec.num_actions} actions)"

    @property
    def support(self) -> Support | None:
        """The atoms of its distributions, in returns; None if they are not fixed (dqn, qr)."""
        if self.head.support is None:
            return None
        if "support" in self.params:  # the head's atoms are 0, 1, ..., K - 1
            low, spacing = (float(self.params["support"][name]) for name in ("low", "spacing"))
            return Support.uniform(low, low + spacing * (self.head.support.num_atoms - 1), self.head.support.num_atoms)
        return self.head.support

    def outputs(self, observations: Any) -> np.ndarray:
        """Outputs of the network (N, A, O) for observations ``(N, *spec.observation_shape)``."""
        return np.asarray(_outputs(self.network, self.params, self._checked(observations)))

    def values(self, observations: Any) -> np.ndarray:
        """Mean return of each action, (N, A)."""
        return np.asarray(in_returns(self.params, self.head.values(jnp.asarray(self.outputs(observations)))))

    def distributions(self, observations: Any) -> Distributions:
        """Atoms and masses (N, A, K) of the return distribution of each action."""
        atoms, masses = self.head.distribution(jnp.asarray(self.outputs(observations)))
        return Distributions(np.asarray(in_returns(self.params, atoms)), np.asarray(masses))

    def act(self, observations: Any) -> np.ndarray:
        """The best actions, (N,) int32."""
        return np.asarray(_greedy(self.head, self.network, self.params, self._checked(observations)))

    def _checked(self, observations: Any) -> np.ndarray:
        observations = np.asarray(observations)
        if observations.shape[1:] != self.spec.observation_shape:
            raise ValueError(
                f"observations must have shape (N, {', '.join(map(str, self.spec.observation_shape))}), got "
                f"{observations.shape}"
            )
        return observations


# Compiled once for all agents with an equal head and network, whatever their weights.
@partial(jax.jit, static_argnums=0)
def _outputs(network: Network, params: Params, observations: Any) -> Any:
    return network.apply(params, observations)


@partial(jax.jit, static_argnums=(0, 1))
def _greedy(head: Head, network: Network, params: Params, observations: Any) -> Any:
    return jnp.argmax(head.values(network.apply(params, observations)), axis=-1).astype(jnp.int32)


MOST_STEPS = 100_000
"""Steps of an episode, unless more are asked for: four times those of the longest game of Atari."""


class Episode(NamedTuple):
    """One episode: its score in the game's own points, and its length in steps."""

    score: float
    length: int


def play_steps(
    choose: Callable[[np.ndarray], np.ndarray], envs: HostEnvs, *, epsilon: float = 0.0, seed: int = 0
) -> Iterator[tuple[np.ndarray, np.ndarray, Step]]:
    """Play without end; after each step, yield the observations, the actions and what the environments returned.

    Args:
        choose: the best actions (N,) for observations.
        envs: where to play.
        epsilon: probability of a random action.
        seed: for the environments and the random actions.
    """
    rng = np.random.default_rng(np.random.SeedSequence([seed, 1]))
    frames, first = envs.reset(seed), np.ones(envs.num_envs, bool)
    stack = FrameStack(envs.spec, envs.num_envs)
    while True:
        observations = stack.push(frames, first)
        random = rng.integers(0, envs.spec.num_actions, envs.num_envs)
        explore = rng.random(envs.num_envs) < epsilon
        actions = np.where(explore, random, choose(observations)).astype(np.int32)
        step = envs.step(actions)
        yield observations, actions, step
        frames, first = step.frames, step.first


def play_episodes(
    agent: Agent,
    envs: HostEnvs,
    episodes: int,
    *,
    epsilon: float = 0.0,
    seed: int = 0,
    max_steps: int = MOST_STEPS,
    on_step: Callable[[np.ndarray, np.ndarray, Step], None] | None = None,
) -> list[Episode]:
    """Play whole episodes. One that does not end is cut, and the next begins where it stood.

    Each environment plays a fixed number of episodes: the first to finish would more often be short ones.

    Args:
        agent: the player.
        envs: where it plays.
        episodes: how many in total.
        epsilon: probability of a random action.
        seed: for the environments and the random actions.
        max_steps: after which an episode is cut.
        on_step: called after each step with observations, actions and what the environments returned.
    """
    quota = np.full(envs.num_envs, episodes // envs.num_envs) + (np.arange(envs.num_envs) < episodes % envs.num_envs)
    scores, lengths = np.zeros(envs.num_envs), np.zeros(envs.num_envs, np.int64)
    played: list[list[Episode]] = [[] for _ in range(envs.num_envs)]
    for observations, actions, step in play_steps(agent.act, envs, epsilon=epsilon, seed=seed) if episodes else ():
        if on_step is not None:
            on_step(observations, actions, step)
        scores += step.rewards
        lengths += ~(step.first & ~step.terminated)
        for i in np.flatnonzero(step.ended | (lengths >= max_steps)):
            if len(played[i]) < quota[i]:
                played[i].append(Episode(float(scores[i]), int(lengths[i])))
            scores[i] = lengths[i] = 0
        if all(len(done) == n for done, n in zip(played, quota, strict=True)):
            break
    return [episode for done in played for episode in done]
