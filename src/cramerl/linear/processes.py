"""Finite Markov reward processes: what follows each state, and the true values and returns."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from cramerl._arrays import Floats, host_reals
from cramerl._checks import require_count, require_discount, require_finite, require_seed
from cramerl.linear.grids import Grid, grid_of
from cramerl.linear.inputs import (
    action_matrices,
    make_tabular,
    outcome_pairs,
    policy_table,
    require_stochastic,
    state_rewards,
    stochastic_matrix,
    table_entries,
)
from cramerl.linear.krylov import solve_fixed_point
from cramerl.linear.operators import Branches, Sparse, projected_bellman_update, projected_terminal_distribution
from cramerl.linear.stationary import stationary_distribution
from cramerl.supports import Support, require_support


class Transitions(NamedTuple):
    """Sampled transitions, one per entry.

    Attributes:
        states: (T,) state.
        rewards: (T,) reward received on leaving it.
        next_states: (T,) state after it.
        terminated: (T,) whether the return ends with this reward.
    """

    states: NDArray[np.intp]
    rewards: Floats
    next_states: NDArray[np.intp]
    terminated: NDArray[np.bool_]


def require_process(process: Any) -> None:
    """Raise ValueError unless this is a `MarkovRewardProcess`."""
    if not isinstance(process, MarkovRewardProcess):
        raise ValueError(f"process must be a MarkovRewardProcess, got {type(process).__name__}")


class MarkovRewardProcess:
    """A finite Markov chain with rewards, dense or sparse.

    Args:
        transition: (S, S) array or scipy.sparse matrix; rows sum to one.
        rewards: (S,) rewards received on leaving each state, or for each state a list of (value, probability) pairs.
        discount: in [0, 1).

    Use `from_outcomes` for rewards that depend on the next state, `from_mdp` for a decision process and a policy, and
    `from_gymnasium` for a tabular Gymnasium environment.

    Example:
        >>> process = MarkovRewardProcess([[0.5, 0.5], [0.0, 1.0]], [1.0, 0.0], discount=0.5)
        >>> process.true_values()
        array([1.33333333, 0.        ])
    """

    grid: Grid | None = None
    """Where the states lie, if they are cells of a world; for pictures only."""

    def __init__(self, transition: Any, rewards: Any, discount: float):
        distribution = stochastic_matrix("transition", transition)
        states, values, probabilities = state_rewards(rewards, distribution.shape[0])
        if len(states) == distribution.shape[0]:
            next_distribution = distribution
        else:
            next_distribution = sparse.csr_array(distribution[states].multiply(probabilities[:, None]))
        discounts, ends = np.full(len(values), require_discount(discount)), np.zeros(len(values), dtype=bool)
        self._set(Branches(states, values, discounts, ends, next_distribution), discount)

    @classmethod
    def from_outcomes(cls, outcomes: Iterable[tuple[float, Any]], discount: float) -> Self:
        """A process whose reward may depend on the next state.

        Args:
            outcomes: pairs (reward, P_r) with P_r(x, x') = Pr(R = r, X' = x' | x); the P_r sum to a stochastic matrix.
            discount: in [0, 1).
        """
        pairs = outcome_pairs(outcomes)
        if not pairs:
            raise ValueError("outcomes must hold at least one (reward, matrix) pair, got none")
        if len({matrix.shape for _, matrix in pairs}) > 1:
            raise ValueError(f"outcomes must have matrices of one shape, got {[m.shape for _, m in pairs]}")
        entries = [(*m.tocoo().coords, np.full(m.nnz, reward), m.tocoo().data) for reward, m in pairs]
        x, y, r, p = map(np.concatenate, zip(*entries, strict=True))
        return cls._from_entries(pairs[0][1].shape[0], x, y, r, p, discount)

    @classmethod
    def from_mdp(cls, transitions: Any, rewards: ArrayLike, policy: ArrayLike | str, discount: float) -> Self:
        """The process of following a policy in a Markov decision process.

        Args:
            transitions: (S, A, S) array, Pr(x' | x, a); or an (A, S, S) array, or a list of A sparse matrices.
            rewards: (S,), (S, A) or (S, A, S).
            policy: (S, A) probabilities, (S,) actions, or "uniform".
            discount: in [0, 1).
        """
        by_action = action_matrices(transitions)
        num_states, num_actions = by_action[0].shape[0], len(by_action)
        choice = policy_table(policy, num_states, num_actions)
        reward = host_reals("rewards", rewards)
        shapes = [(num_states,), (num_states, num_actions), (num_states, num_actions, num_states)]
        if reward.shape not in shapes:
            raise ValueError(f"rewards must have shape {', '.join(map(str, shapes))}, got {reward.shape}")
        entries = []
        for action, matrix in enumerate(by_action):
            x, y = matrix.tocoo().coords
            index = (x, np.full(len(x), action), y)[: reward.ndim]
            entries.append((x, y, reward[index], matrix.tocoo().data * choice[x, action]))
        x, y, r, p = map(np.concatenate, zip(*entries, strict=True))
        return cls._from_entries(num_states, x, y, r, p, discount)

    @classmethod
    def from_gymnasium(
        cls, env_id: str, policy: ArrayLike | str, discount: float, *, absorbing: bool = False, **options: Any
    ) -> Self:
        """A tabular Gymnasium environment (with ``env.unwrapped.P``: FrozenLake, Taxi, CliffWalking) under a policy.

        When an episode ends, the return ends with it and the chain restarts from the environment's initial states, so
        that a stationary distribution exists.

        Args:
            env_id: for instance "FrozenLake-v1".
            policy: (S, A) probabilities, (S,) actions, or "uniform".
            discount: in [0, 1).
            absorbing: stay in the final state for ever instead, with rewards of zero. Values are the same; the
                stationary distribution then is that of the final states.
            options: passed to ``gymnasium.make``.
        """
        env = make_tabular(env_id, options)
        try:
            table = getattr(env.unwrapped, "P", None)
            if table is None:
                raise ValueError(f"env_id must name an environment with a table env.unwrapped.P, got {env_id!r}")
            starts = np.asarray(env.unwrapped.initial_state_distrib)
            grid = grid_of(env.unwrapped, len(table))
        finally:
            env.close()
        x, action, y, reward, probability, ended = table_entries(table)
        num_states, num_actions = len(table), 1 + int(action.max())
        probability = probability * policy_table(policy, num_states, num_actions)[x, action]
        # A final state is left with a reward of zero, to itself or to an initial state, whatever the table says.
        final = np.unique(y[ended])
        keep, n = ~np.isin(x, final), len(final)
        added = (final, final, np.zeros(n), np.ones(n), np.ones(n, dtype=bool))
        x, y, reward, probability, ended = (
            np.append(given[keep], more) for given, more in zip((x, y, reward, probability, ended), added, strict=True)
        )
        if absorbing:
            process = cls._from_entries(num_states, x, y, reward, probability, discount)
            process.grid = grid
            return process
        # An entry that ends an episode becomes one entry for each initial state.
        start_states = np.flatnonzero(starts)
        index = np.repeat(np.arange(len(x)), np.where(ended, len(start_states), 1))
        restarts, times = ended[index], int(ended.sum())
        y, probability = y[index], probability[index]
        y[restarts] = np.tile(start_states, times)
        probability[restarts] *= np.tile(starts[start_states], times)
        process = cls._from_entries(num_states, x[index], y, reward[index], probability, discount, restarts)
        process.grid = grid
        return process

    @classmethod
    def _from_entries(
        cls,
        num_states: int,
        states: NDArray[Any],
        next_states: NDArray[Any],
        rewards: NDArray[Any],
        probabilities: NDArray[Any],
        discount: float,
        ended: NDArray[Any] | None = None,
    ) -> Self:
        """Group entries Pr(R = r, X' = x' | x) by state, reward and whether the return ends."""
        require_finite(rewards=rewards)
        if not np.isfinite(probabilities).all() or (probabilities < 0).any():
            raise ValueError(f"probabilities must be finite and >= 0, got {probabilities.min()}")
        ended = np.zeros(len(states), dtype=bool) if ended is None else ended
        used = probabilities > 0
        states, next_states, rewards, probabilities, ended = (
            np.asarray(a)[used] for a in (states, next_states, rewards, probabilities, ended)
        )
        order = np.lexsort((rewards, ended, states))
        x, r, e = states[order], rewards[order], ended[order]
        starts = np.ones(len(order), dtype=bool)
        starts[1:] = (np.diff(x) != 0) | (np.diff(r) != 0) | (e[1:] != e[:-1])
        branch = np.cumsum(starts) - 1
        shape = (int(starts.sum()), num_states)
        next_distribution = sparse.csr_array((probabilities[order], (branch, next_states[order])), shape=shape)
        discounts = np.where(e[starts], 0.0, require_discount(discount))
        process = cls.__new__(cls)
        process._set(Branches(x[starts].astype(np.intp), r[starts], discounts, e[starts], next_distribution), discount)
        require_stochastic("the probabilities out of each state", process.transition)
        return process

    def _set(self, branches: Branches, discount: float) -> None:
        require_finite(rewards=branches.rewards)
        self.branches = branches
        self.discount = require_discount(discount)

    @property
    def num_states(self) -> int:
        """Number of states, S."""
        return self.branches.num_states

    @cached_property
    def transition(self) -> Sparse:
        """(S, S) sparse transition matrix."""
        transition = sparse.csr_array(self.branches.gather(self.branches.next_distribution), copy=True)
        transition.data.flags.writeable = False
        return transition

    @property
    def expected_rewards(self) -> Floats:
        """(S,) mean reward on leaving each state."""
        return self.branches.gather(self.branches.rewards * self.branches.mass)

    @property
    def reward_range(self) -> tuple[float, float]:
        """Smallest and largest reward that can occur."""
        return float(self.branches.rewards.min()), float(self.branches.rewards.max())

    def __repr__(self) -> str:
        size = f"{self.num_states} states, {self.transition.nnz} transitions"
        return f"MarkovRewardProcess({size}, discount {self.discount})"

    def stationary_distribution(self) -> Floats:
        """(S,) the distribution that a step of the chain does not change; ValueError if there is more than one.

        States that are left for ever get zero. Periodic chains have one too.
        """
        return self._stationary.copy()

    @cached_property
    def _stationary(self) -> Floats:
        return stationary_distribution(self.transition)

    def continuation(self) -> Sparse:
        """(S, S) discounted transition matrix: gamma P, without the transitions that end the return."""
        return self._discounted(self.branches.discounts)

    def _discounted(self, discounts: Floats) -> Sparse:
        b = self.branches
        return sparse.csr_array(b.gather(sparse.csr_array(b.next_distribution.multiply(discounts[:, None]))))

    def true_values(self) -> Floats:
        """(S,) expected return of every state."""
        return self._values.copy()

    @cached_property
    def _values(self) -> Floats:
        following, rewards = self.continuation(), self.expected_rewards
        if self.num_states <= 2000:
            return np.linalg.solve(np.eye(self.num_states) - following.toarray(), rewards)
        tol = 1e-13 * max(1.0, float(np.linalg.norm(rewards)))
        return solve_fixed_point(lambda v: following @ v, rewards, tol, max_products=100_000).solution

    def true_variances(self) -> Floats:
        """(S,) variance of the return of every state."""
        return self._variances.copy()

    @cached_property
    def _variances(self) -> Floats:
        # From the second moments, E G^2 = E[r^2 + 2 r gamma V' + gamma^2 G'^2].
        b, values = self.branches, self._values
        following = b.continuing().next_distribution @ values
        known = b.gather(b.rewards**2 * b.mass + 2 * b.rewards * b.discounts * following)
        matrix = self._discounted(b.discounts**2)
        tol = 1e-12 * max(1.0, float(np.linalg.norm(known)))
        moments = solve_fixed_point(lambda v: matrix @ v, known, tol, max_products=100_000).solution
        return np.maximum(moments - values**2, 0.0)

    def true_returns(self, support: Support) -> Floats:
        """(S, K) distribution of the return of every state on the support: the tabular fixed point, without features.

        Its only error is that of the grid: for a reference distribution take a fine support that covers `return_range`.
        """
        require_support(support)
        even = np.full((self.num_states, support.num_atoms), 1.0 / support.num_atoms)
        ended = projected_terminal_distribution(self.branches, support)
        continuing = self.branches.continuing()

        # Solve for the difference to the uniform distribution. It has mass zero, and there the update contracts. Mass
        # that rounding adds would stay, because a backup preserves it, so every update removes it.
        def update(masses: Floats) -> Floats:
            return projected_bellman_update(continuing, support, masses - masses.mean(axis=1, keepdims=True))

        constant = projected_bellman_update(continuing, support, even) + ended - even
        return even + solve_fixed_point(update, constant, 1e-13, max_products=100_000).solution

    def return_range(self) -> tuple[float, float]:
        """Bounds of every possible return, from the rewards that can occur."""
        low, high = self.reward_range
        scale = 1.0 / (1.0 - self.discount)
        if self.branches.ends.any():
            return min(low, low * scale), max(high, high * scale)
        return low * scale, high * scale

    def sample(self, num_steps: int, seed: int) -> Transitions:
        """One trajectory of ``num_steps`` transitions that starts from the stationary distribution.

        Args:
            num_steps: number of transitions.
            seed: of the random generator; the same seed gives the same trajectory.
        """
        num_steps = require_count("num_steps", num_steps)
        rng = np.random.default_rng(require_seed(seed))
        distribution, b = self.branches.next_distribution, self.branches
        # The entries of a state are contiguous, so a search in the cumulative probabilities draws the next state. The
        # loop works on lists, which Python reads much faster than single elements of arrays.
        ends = np.cumsum(distribution.data)
        first, last = (
            distribution.indptr[np.searchsorted(b.states, np.arange(self.num_states), side=side)]
            for side in ("left", "right")
        )
        below, above = (np.concatenate([[0.0], ends])[edge] for edge in (first, last))
        cumulative, starts, stops, bottoms, masses, targets = (
            array.tolist() for array in (ends, first, last, below, above - below, distribution.indices)
        )
        entries = np.empty(num_steps, dtype=np.intp)
        state = int(rng.choice(self.num_states, p=self.stationary_distribution()))
        for t, draw in enumerate(rng.random(num_steps).tolist()):
            place, stop = bottoms[state] + draw * masses[state], stops[state]
            entries[t] = entry = min(bisect_right(cumulative, place, starts[state], stop), stop - 1)
            state = targets[entry]
        branch = np.searchsorted(distribution.indptr, entries, side="right") - 1
        next_states = distribution.indices[entries].astype(np.intp)
        return Transitions(b.states[branch], b.rewards[branch], next_states, b.ends[branch])
