"""Features of a state and an action."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cramerl._arrays import Floats
from cramerl._checks import require_choice
from cramerl.linear.logs.basis import StateFeatures
from cramerl.linear.logs.feature_tables import Table, side_by_side, stored
from cramerl.linear.logs.observations import Observations
from cramerl.linear.logs.own_features import Function, state_table

# Columns up to which products with actions are dense.
_MOST_DENSE = 300


# How much of the regularisation the features of a state get that stand for all actions.
_OF_ALL_ACTIONS = 0.01
# How much those get, at most, that stand for an action in all states: as much as all features of the state together.
_IN_ALL_STATES = 100.0


class ActionFeatures(Protocol):
    """Features of states and actions.

    Attributes:
        name: in words.
        num_features: D.
    """

    name: str
    num_features: int

    @property
    def penalties(self) -> Floats | None:
        """(D,) how much of the regularisation each feature gets; None: all of it."""
        ...

    def taken(self, observations: Observations, actions: Any) -> Table:
        """Features (m, D) of states and the actions taken there: codes (m,), or numbers (m, A)."""
        ...

    def expected(self, observations: Observations, probs: Floats) -> Table:
        """The mean (m, D) of the features over the actions of a policy with these probabilities (m, A)."""
        ...


class ProductFeatures:
    """The features of the state, for all actions together and then for each action apart.

    Regularisation draws each action in a state to what all actions do there. Those features of the state that stand for
    all actions get little of it: otherwise an action that was never taken in a state would be drawn to the average over
    all states. The constants, which stand for what an action does in every state, get more of it.
    """

    def __init__(self, state: StateFeatures, num_actions: int):
        self.name = f"{state.name} for each action"
        self.num_features = state.num_features * (num_actions + 1)
        self._state, self._num_actions = state, num_actions

    @property
    def penalties(self) -> Floats | None:
        """(D,) how much of the regularisation each feature gets."""
        constant = _constant(stored(self._state(self._state.sample), False))
        of_one = np.where(constant, min(_IN_ALL_STATES, len(constant)), 1.0)
        return np.concatenate([np.full(len(of_one), _OF_ALL_ACTIONS), np.tile(of_one, self._num_actions)])

    def taken(self, observations: Observations, actions: Any) -> Table:
        """Return (m, D (A + 1))."""
        codes = _codes(actions, len(observations), self._num_actions)
        ones = np.ones(2 * len(codes))
        columns = np.stack([np.zeros_like(codes), codes + 1], axis=1).ravel()
        shape = len(codes), self._num_actions + 1
        return self._products(observations, sparse.csr_array((ones, columns, 2 * np.arange(len(codes) + 1)), shape))

    def expected(self, observations: Observations, probs: Floats) -> Table:
        """Return (m, D (A + 1))."""
        checked = _checked_probs(probs, len(observations), self._num_actions)
        total = checked.sum(axis=1, keepdims=True)
        return self._products(observations, sparse.csr_array(np.concatenate([total, checked], axis=1)))

    def _products(self, observations: Observations, factors: Any) -> Table:
        table = self._state(observations)
        if self.num_features > _MOST_DENSE:
            return row_products(factors, sparse.csr_array(table))
        return (factors.toarray()[:, :, None] * stored(table, False)[:, None, :]).reshape(len(observations), -1)


def _constant(table: Floats) -> NDArray[np.bool_]:
    """(D,) which columns are constant, but not zero."""
    return (table == table[:1]).all(axis=0) & (table[:1] != 0).all(axis=0)


class QuadraticFeatures:
    """The features of the state; each number of the action, its square, and its products with those of the state."""

    penalties: Floats | None = None

    def __init__(self, state: StateFeatures, num_columns: int):
        self.name = f"{state.name} and squares of the action"
        self._state, self._num_columns = state, num_columns
        self.num_features = state.num_features + num_columns * (2 + state.numbers(state.sample).shape[1])

    def taken(self, observations: Observations, actions: Any) -> Table:
        """Return (m, D + A (2 + C))."""
        a = _numbers(actions, len(observations), self._num_columns)
        products = (a[:, :, None] * self._state.numbers(observations)[:, None, :]).reshape(len(a), -1)
        table = self._state(observations)
        return side_by_side([table, a, a**2, products], len(a), sparse.issparse(table))

    def expected(self, observations: Observations, probs: Floats) -> Table:
        """Raise: only discrete actions have probabilities."""
        return _no_probabilities()


class OwnActionFeatures:
    """A function of the user's, of states and actions."""

    penalties: Floats | None = None

    def __init__(self, function: Any, state: StateFeatures, levels: tuple[Any, ...] | None, num_columns: int):
        self.name, self._levels, self._num_columns = "your function", levels, num_columns
        trial = _trial_actions(len(state.sample), levels, num_columns)
        self._function = Function("features_action", function, state_table(state.sample), trial)
        self.num_features = self._function.num_features

    def taken(self, observations: Observations, actions: Any) -> Table:
        """Return (m, D)."""
        if self._levels is None:
            given = _numbers(actions, len(observations), self._num_columns)
        else:
            given = np.asarray(self._levels)[_codes(actions, len(observations), len(self._levels))]
        return self._function(state_table(observations), given)

    def expected(self, observations: Observations, probs: Floats) -> Table:
        """Return (m, D)."""
        if self._levels is None:
            return _no_probabilities()
        checked = _checked_probs(probs, len(observations), len(self._levels))
        total = stored(np.zeros((len(observations), self.num_features)), self._function.as_sparse)
        for label, share in zip(np.asarray(self._levels), checked.T, strict=True):
            if (rows := np.flatnonzero(share)).size:
                table = self._function(state_table(observations.take(rows)), np.full(len(rows), label))
                placed = sparse.csr_array((share[rows], (rows, np.arange(len(rows)))), (len(share), len(rows)))
                total = total + placed @ table
        return total


def action_features(
    features_action: Any, state: StateFeatures, action_levels: Any, num_actions_columns: int | None
) -> ActionFeatures:
    """Features of states and actions.

    Args:
        features_action: None or "product": for discrete actions, the features of the state and, for each action, their
            products with its indicator; for actions that are numbers, the features of the state, the numbers, their
            squares, and their products with the numbers of the state. Or a function of the states (`state_table`) and
            the actions, labels (m,) or numbers (m, A), that returns (m, D).
        state: the features of the state.
        action_levels: labels of discrete actions; None if actions are numbers.
        num_actions_columns: A, of actions that are numbers.
    """
    levels = None if action_levels is None else tuple(action_levels)
    if levels is None and not num_actions_columns:
        raise ValueError("action must name a column of the log if features of actions are wanted, got None")
    if callable(features_action):
        return OwnActionFeatures(features_action, state, levels, num_actions_columns or 0)
    if features_action is not None and not isinstance(features_action, str):
        kind = type(features_action).__name__
        raise ValueError(f"features_action must be 'product' or a function of states and actions, got {kind}")
    require_choice("features_action", features_action or "product", ("product",))
    return QuadraticFeatures(state, num_actions_columns or 0) if levels is None else ProductFeatures(state, len(levels))


def row_products(left: Any, right: Any) -> Table:
    """The products (m, A D) of each row (A) of one sparse table with the same row (D) of another."""
    rows = np.repeat(np.arange(left.shape[0]), np.diff(left.indptr))
    spread = right[rows]  # the rows that belong to one row of the result follow one another
    times = np.diff(spread.indptr)
    columns = np.repeat(left.indices.astype(np.int64) * right.shape[1], times) + spread.indices
    starts = spread.indptr[left.indptr]
    shape = left.shape[0], left.shape[1] * right.shape[1]
    return sparse.csr_array((spread.data * np.repeat(left.data, times), columns, starts), shape=shape)


def _trial_actions(size: int, levels: tuple[Any, ...] | None, num_columns: int) -> NDArray[Any]:
    """Actions at random, with which a function is tried."""
    rng = np.random.default_rng(0)
    if levels is None:
        return rng.uniform(0.1, 0.9, (size, num_columns))
    return np.asarray(levels)[rng.integers(len(levels), size=size)]


def _codes(actions: Any, num_rows: int, num_actions: int) -> NDArray[np.intp]:
    codes = np.asarray(actions)
    if codes.shape != (num_rows,) or codes.dtype.kind not in "iu":
        raise ValueError(f"actions must be {num_rows} codes, got shape {codes.shape} of {codes.dtype}")
    if num_rows and not 0 <= codes.min() <= codes.max() < num_actions:
        raise ValueError(f"actions must be codes from 0 to {num_actions - 1}, got {codes.min()} to {codes.max()}")
    return codes.astype(np.intp)


def _numbers(actions: Any, num_rows: int, num_columns: int) -> Floats:
    numbers = np.asarray(actions, dtype=np.float64)
    if numbers.shape != (num_rows, num_columns):
        raise ValueError(f"actions must have shape ({num_rows}, {num_columns}), got {numbers.shape}")
    return numbers


def _checked_probs(probs: Any, num_rows: int, num_actions: int) -> Floats:
    checked = np.asarray(probs, dtype=np.float64)
    if checked.shape != (num_rows, num_actions):
        raise ValueError(f"probs must have shape ({num_rows}, {num_actions}), got {checked.shape}")
    return checked


def _no_probabilities() -> Table:
    raise ValueError("probs must belong to discrete actions, but the actions of this log are numbers: use `taken`")
