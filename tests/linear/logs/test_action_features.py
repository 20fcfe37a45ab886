"""Features of states and actions: what is taken, and means over a policy's actions."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy import sparse

from cramerl.linear.logs.action_features import action_features, row_products
from cramerl.linear.logs.basis import state_features
from cramerl.linear.logs.observations import Observations, ObservationSchema

SCHEMA = ObservationSchema(("x", "y"), ("ward",), (("a", "b", "c"),))
LEVELS = ("hold", "low", "high")
ROWS = 200


def observed():
    rng = np.random.default_rng(0)
    return Observations(rng.normal(size=(ROWS, 2)), rng.integers(0, 3, (ROWS, 1)).astype(np.int32))


def state(name):
    return state_features(name, observed(), SCHEMA)


def policy():
    probs = np.random.default_rng(1).dirichlet(np.ones(3), ROWS)
    probs[:50] = [0, 0, 1]
    probs[:, 1] = 0  # nobody does this
    return probs


def dense(table):
    return table.toarray() if sparse.issparse(table) else table


def doses(states, actions):
    dose = np.array([0.0, 1.0, 4.0])[[LEVELS.index(a) for a in actions]]
    return np.stack([states[:, 0], dose, dose * states[:, 1]], axis=1)


def indicators(states, actions):
    places = np.array([LEVELS.index(a) for a in actions]) * 100 + np.clip(30 * states[:, 0] + 50, 0, 99).astype(int)
    return sparse.csr_array((np.ones(len(states)), places, np.arange(len(states) + 1)), (len(states), 300))


def with_ones(states, actions):
    return np.column_stack([np.ones(len(states)), actions == "low"])


@pytest.mark.parametrize(("name", "is_sparse"), [("splines:4", False), ("rbf:90", True), ("bins:40", True)])
def test_products_are_the_state_then_the_state_at_the_place_of_its_action(name, is_sparse):
    features = action_features(None, state(name), LEVELS, None)
    codes = np.random.default_rng(2).integers(0, 3, ROWS)
    table, phi = features.taken(observed(), codes), dense(state(name)(observed()))
    assert sparse.issparse(table) == is_sparse
    assert table.shape == (ROWS, features.num_features) == (ROWS, 4 * phi.shape[1])
    wanted = np.concatenate([phi, *(phi * (codes == a)[:, None] for a in range(3))], axis=1)
    np.testing.assert_array_equal(dense(table), wanted)
    if is_sparse:
        assert table.has_canonical_format


@pytest.mark.parametrize("name", ["splines:4", "rbf:90", "bins:40"])
@pytest.mark.parametrize("kind", ["product", doses, indicators])
def test_expected_features_are_the_sum_over_actions(name, kind):
    features = action_features(kind, state(name), LEVELS, None)
    probs = policy()
    each = [features.taken(observed(), np.full(ROWS, a)) for a in range(3)]
    wanted = sum(probs[:, [a]] * dense(each[a]) for a in range(3))
    expected = features.expected(observed(), probs)
    assert sparse.issparse(expected) == sparse.issparse(each[0])
    np.testing.assert_allclose(dense(expected), wanted, atol=1e-14)


def test_a_function_is_called_once_for_each_action_with_a_probability():
    calls = []

    def counted(states, actions):
        calls.append(set(actions))
        return doses(states, actions)

    features = action_features(counted, state("columns"), LEVELS, None)
    calls.clear()
    features.expected(observed(), policy())
    assert calls == [{"hold"}, {"high"}]


def test_a_constant_is_added_to_a_function_that_has_none():
    assert action_features(doses, state("columns"), LEVELS, None).num_features == 4
    features = action_features(with_ones, state("columns"), LEVELS, None)
    assert features.num_features == 2
    np.testing.assert_array_equal(
        features.expected(observed(), policy())[:, 0].round(12), policy().sum(axis=1).round(12)
    )


def test_numbers_of_actions_come_with_squares_and_products():
    features = action_features(None, state("splines:4"), None, 2)
    actions = np.random.default_rng(2).normal(size=(ROWS, 2))
    table = features.taken(observed(), actions)
    phi, z = state("splines:4")(observed()), state("splines:4").numbers(observed())
    wanted = [phi, actions, actions**2, actions[:, :1] * z, actions[:, 1:] * z]
    np.testing.assert_allclose(table, np.concatenate(wanted, axis=1))
    assert table.shape[1] == features.num_features
    with pytest.raises(ValueError, match="actions of this log are numbers"):
        features.expected(observed(), np.ones((ROWS, 2)))


def test_a_function_gets_numbers_of_actions_as_they_are():
    features = action_features(lambda s, a: a**3, state("columns"), None, 1)
    actions = np.linspace(-1, 1, ROWS)[:, None]
    np.testing.assert_array_equal(
        features.taken(observed(), actions), np.concatenate([np.ones_like(actions), actions**3], 1)
    )
    with pytest.raises(ValueError, match="actions of this log are numbers"):
        features.expected(observed(), np.ones((ROWS, 1)))


@pytest.mark.parametrize("kind", ["product", doses])
def test_features_survive_pickling(kind):
    features = action_features(kind, state("splines:4"), LEVELS, None)
    again = pickle.loads(pickle.dumps(features))
    np.testing.assert_array_equal(again.expected(observed(), policy()), features.expected(observed(), policy()))


def test_products_of_sparse_rows_are_those_of_dense_ones():
    rng = np.random.default_rng(0)
    left, right = (rng.random((50, n)) * (rng.random((50, n)) < 0.3) for n in (4, 7))
    found = row_products(sparse.csr_array(left), sparse.csr_array(right)).toarray()
    np.testing.assert_array_equal(found, (left[:, :, None] * right[:, None, :]).reshape(50, -1))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"features_action": "sum"}, "features_action must be one of 'product', got 'sum'"),
        ({"features_action": 3}, "features_action must be 'product' or a function of states and actions, got int"),
        ({"features_action": lambda s, a: s[1:]}, "features_action must return a table of 200 rows"),
        ({"action_levels": None}, "action must name a column of the log"),
    ],
)
def test_bad_arguments_are_told(given, sentence):
    arguments = {"features_action": None, "action_levels": LEVELS} | given
    with pytest.raises(ValueError, match=sentence):
        action_features(state=state("columns"), num_actions_columns=None, **arguments)


@pytest.mark.parametrize(
    ("actions", "sentence"),
    [
        (np.full(ROWS, 3), "actions must be codes from 0 to 2, got 3 to 3"),
        (np.full(ROWS, -1), "actions must be codes from 0 to 2, got -1 to -1"),
        (np.zeros(ROWS), r"actions must be 200 codes, got shape \(200,\) of float64"),
        (np.zeros(3, int), r"actions must be 200 codes, got shape \(3,\)"),
    ],
)
def test_bad_actions_are_told(actions, sentence):
    with pytest.raises(ValueError, match=sentence):
        action_features(None, state("columns"), LEVELS, None).taken(observed(), actions)


def test_bad_probabilities_and_numbers_are_told():
    with pytest.raises(ValueError, match=r"probs must have shape \(200, 3\), got \(200, 2\)"):
        action_features(None, state("columns"), LEVELS, None).expected(observed(), np.ones((ROWS, 2)))
    with pytest.raises(ValueError, match=r"actions must have shape \(200, 2\), got \(200,\)"):
        action_features(None, state("columns"), None, 2).taken(observed(), np.ones(ROWS))
