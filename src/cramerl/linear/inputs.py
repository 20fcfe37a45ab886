"""The ways to specify a process: matrices, rewards, policies and tables, checked and brought to one form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cramerl._arrays import Floats, host_reals
from cramerl._checks import require_number
from cramerl._extras import load_library
from cramerl.linear.operators import Sparse

_ROW_SUM_TOLERANCE = 1e-8


def square_matrix(name: str, matrix: Any) -> Sparse:
    """A sparse copy of a square matrix of probabilities, without stored zeros."""
    given = matrix if sparse.issparse(matrix) else host_reals(name, matrix)
    if given.dtype.kind not in "biuf" or len(given.shape) != 2:
        raise ValueError(f"{name} must be a matrix of real numbers, dense or scipy.sparse, got {matrix!r}")
    distribution: Sparse = sparse.csr_array(given, copy=True)
    if distribution.shape[0] != distribution.shape[1] or distribution.shape[0] == 0:
        raise ValueError(f"{name} must be square, got shape {distribution.shape}")
    distribution = distribution.astype(np.float64)
    distribution.eliminate_zeros()  # a stored zero is not a transition
    entries = distribution.data
    if not np.isfinite(entries).all() or (entries < 0).any():
        raise ValueError(f"{name} must hold finite probabilities >= 0, got {entries[~(entries >= 0)][:1]}")
    return distribution


def stochastic_matrix(name: str, matrix: Any) -> Sparse:
    """A square matrix whose rows sum to one."""
    distribution = square_matrix(name, matrix)
    require_stochastic(f"rows of {name}", distribution)
    return distribution


def require_stochastic(name: str, distribution: Sparse) -> None:
    """Raise ValueError unless the rows sum to one."""
    sums = np.asarray(distribution.sum(axis=1)).ravel()
    off = np.abs(sums - 1)
    if off.max() > _ROW_SUM_TOLERANCE:
        worst = int(off.argmax())
        raise ValueError(f"{name} must sum to 1, state {worst} sums to {sums[worst]:.12g}")


def state_rewards(rewards: Any, num_states: int) -> tuple[NDArray[np.intp], Floats, Floats]:
    """(states, values, probabilities), one entry for each reward that can follow each state."""
    try:
        plain = np.array(host_reals("rewards", rewards))
    except ValueError:
        plain = None
    if plain is not None and plain.ndim == 1:
        if len(plain) != num_states:
            raise ValueError(f"rewards must have one entry for each of the {num_states} states, got {len(plain)}")
        return np.arange(num_states), plain, np.ones(num_states)
    if not isinstance(rewards, Sequence | np.ndarray) or len(rewards) != num_states:
        raise ValueError(f"rewards must be an array or a list with one entry for each of {num_states} states")
    states, values, probabilities = [], [], []
    for state, pairs in enumerate(rewards):
        try:
            distribution = host_reals("rewards", pairs).reshape(len(pairs), 2)
        except (TypeError, ValueError):
            raise ValueError(f"rewards of state {state} must be (value, probability) pairs, got {pairs!r}") from None
        if not (distribution[:, 1] >= 0).all() or not abs(distribution[:, 1].sum() - 1) <= _ROW_SUM_TOLERANCE:
            given = distribution[:, 1].tolist()
            named = f"rewards must be distributions: reward probabilities of state {state}"
            raise ValueError(f"{named} must be >= 0 and sum to 1, got {given}")
        distribution = distribution[distribution[:, 1] > 0]
        states += [state] * len(distribution)
        values.append(distribution[:, 0])
        probabilities.append(distribution[:, 1])
    return np.array(states, dtype=np.intp), np.concatenate(values), np.concatenate(probabilities)


def action_matrices(transitions: Any) -> list[Sparse]:
    """One transition matrix for each action, from an (S, A, S) or (A, S, S) array or a list of sparse matrices."""
    if isinstance(transitions, list | tuple) and any(sparse.issparse(m) for m in transitions):
        return [stochastic_matrix(f"transitions[{a}]", matrix) for a, matrix in enumerate(transitions)]
    table = host_reals("transitions", transitions)
    if table.ndim == 3 and table.shape[0] == table.shape[2]:
        table = table.transpose(1, 0, 2)
    elif table.ndim != 3 or table.shape[1] != table.shape[2]:
        raise ValueError(f"transitions must have shape (S, A, S), got {table.shape}")
    return [stochastic_matrix(f"transitions of action {a}", matrix) for a, matrix in enumerate(table)]


def policy_table(policy: Any, num_states: int, num_actions: int) -> Floats:
    """(S, A) probabilities, from "uniform", (S,) actions or (S, A) probabilities."""
    if isinstance(policy, str):
        if policy != "uniform":
            raise ValueError(f"policy must be an array or 'uniform', got {policy!r}")
        return np.full((num_states, num_actions), 1.0 / num_actions)
    host_reals("policy", policy)
    given = np.asarray(policy)
    if not np.isfinite(given).all():
        raise ValueError("policy must hold finite real numbers, got some that are not")
    if given.shape == (num_states,) and given.dtype.kind in "iu":
        if given.min() < 0 or given.max() >= num_actions:
            raise ValueError(
                f"policy must name actions from 0 to {num_actions - 1}, got {given.min()} to {given.max()}"
            )
        return np.eye(num_actions)[given]
    if given.shape != (num_states, num_actions):
        allowed = f"({num_states}, {num_actions}) probabilities or ({num_states},) integer actions"
        raise ValueError(f"policy must be {allowed}, got shape {given.shape} of {given.dtype}")
    distribution = given.astype(np.float64)
    if (distribution < 0).any() or np.abs(distribution.sum(axis=1) - 1).max() > _ROW_SUM_TOLERANCE:
        raise ValueError("policy must hold probabilities: >= 0, each row summing to 1")
    return distribution


def outcome_pairs(outcomes: Any) -> list[tuple[float, Sparse]]:
    """(reward, matrix) pairs, checked."""
    try:
        pairs = [(reward, matrix) for reward, matrix in outcomes]
    except (TypeError, ValueError):
        raise ValueError(f"outcomes must be (reward, matrix) pairs, got {outcomes!r}") from None
    named = "the rewards of outcomes"
    return [(require_number(named, reward), square_matrix("outcomes", matrix)) for reward, matrix in pairs]


def make_tabular(env_id: Any, options: dict[str, Any]) -> Any:
    """A Gymnasium environment; one ValueError replaces the many types that Gymnasium raises."""
    gymnasium = load_library("gymnasium")
    try:
        return gymnasium.make(env_id, **options)
    except Exception as error:
        wanted = "env_id must be a Gymnasium id such as 'FrozenLake-v1', and options arguments of that environment"
        what = f"{type(error).__name__}: {error}".removesuffix(": ")
        raise ValueError(f"{wanted}, got {env_id!r} and {options}: {what}") from error


def table_entries(table: dict[int, dict[int, list[tuple[float, int, float, bool]]]]) -> tuple[Any, ...]:
    """Flatten Gymnasium's table P[state][action] = [(probability, next state, reward, terminated), ...]."""
    rows = [(x, a, y, r, p, e) for x, acts in table.items() for a, outs in acts.items() for p, y, r, e in outs]
    x, a, y, r, p, e = map(np.array, zip(*rows, strict=True))
    return x, a, y, r.astype(np.float64), p.astype(np.float64), e.astype(bool)
