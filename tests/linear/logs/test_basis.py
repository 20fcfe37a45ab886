"""Features of states: what each basis spans, that nothing extrapolates, and what users may give."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy import sparse
from sklearn.preprocessing import KBinsDiscretizer, SplineTransformer

from cramerl.linear.logs.basis import candidates, state_features, state_table
from cramerl.linear.logs.observations import Observations, ObservationSchema

NAMES = ["columns", "bins:10", "splines:8", "splines:40", "rbf:20", "cells:20", "fourier:3", "random:70"]
SCHEMA = ObservationSchema(("even", "skewed", "counts", "same"), ("ward", "sex"), (("a", "b", "c"), ("f", "m")))


def observed(num_rows=600, seed=0):
    rng = np.random.default_rng(seed)
    counts = np.where(rng.random(num_rows) < 0.6, 0, rng.integers(1, 30, num_rows))
    numbers = [rng.uniform(-3, 5, num_rows), rng.exponential(size=num_rows) ** 3, counts, np.ones(num_rows)]
    codes = rng.integers(0, [3, 2], (num_rows, 2))
    return Observations(np.stack(numbers, axis=1), codes.astype(np.int32))


def numeric(*columns):
    numbers = np.stack(columns, axis=1).astype(float)
    schema = ObservationSchema(tuple(f"x{j}" for j in range(numbers.shape[1])), (), ())
    return Observations(numbers, np.empty((len(numbers), 0), np.int32)), schema


def categorical(codes, *sizes):
    codes = np.asarray(codes, dtype=np.int32)
    levels = tuple(tuple(range(size)) for size in sizes)
    return Observations(np.empty((len(codes), 0)), codes), ObservationSchema((), tuple(map(str, sizes)), levels)


def dense(table):
    return table.toarray() if sparse.issparse(table) else table


def first_two(states):
    return states[:, :2]


def with_ones(states):
    return np.stack([states[:, 0], np.full(len(states), 2.0)], axis=1)


@pytest.mark.parametrize("name", NAMES)
def test_features_have_the_shape_they_say_and_start_with_one(name):
    observations = observed()
    features = state_features(name, observations, SCHEMA)
    table = features(observations)
    assert features.name == name
    assert table.shape == (600, features.num_features)
    assert (dense(table)[:, 0] == 1).all()
    assert np.isfinite(dense(table)).all()
    assert (dense(table) != 0).any(axis=0).all()


@pytest.mark.parametrize("name", NAMES)
def test_nothing_extrapolates(name):
    observations = observed()
    features = state_features(name, observations, SCHEMA)
    low, high = observations.numbers.min(axis=0), observations.numbers.max(axis=0)
    ends = Observations(np.stack([low, high]), np.array([[0, 1], [2, 0]], np.int32))
    beyond = Observations(np.stack([low - 1e9, high + 1e9]), ends.codes)
    np.testing.assert_array_equal(dense(features(beyond)), dense(features(ends)))


@pytest.mark.parametrize("name", NAMES)
def test_features_depend_on_the_row_alone_and_survive_pickling(name):
    observations = observed()
    features = state_features(name, observations, SCHEMA, seed=3)
    whole = dense(features(observations))
    again = pickle.loads(pickle.dumps(features))
    np.testing.assert_allclose(dense(again(observations.take(slice(100, 200)))), whole[100:200], atol=1e-14)
    same = state_features(name, observations, SCHEMA, seed=3)
    np.testing.assert_array_equal(dense(same(observations)), whole)


@pytest.mark.parametrize(("name", "wanted"), [("bins:40", True), ("splines:40", True), ("bins:5", False)])
def test_tables_of_many_columns_that_are_mostly_zero_are_sparse(name, wanted):
    observations = observed()
    table = state_features(name, observations, SCHEMA)(observations)
    assert sparse.issparse(table) == wanted


def test_sparse_and_dense_tables_hold_the_same(monkeypatch):
    observations = observed()
    table = state_features("splines:40", observations, SCHEMA)(observations)
    monkeypatch.setattr("cramerl.linear.logs.feature_tables._MOST_DENSE", 10_000)
    np.testing.assert_array_equal(table.toarray(), state_features("splines:40", observations, SCHEMA)(observations))


def test_columns_are_standardised_and_those_that_do_not_vary_are_left_out():
    observations, schema = numeric(np.arange(101) * 7 + 3, np.ones(101))
    table = state_features("columns", observations, schema)(observations)
    assert table.shape == (101, 2)
    np.testing.assert_allclose(np.quantile(table[:, 1], [0.25, 0.5, 0.75]), [-1.349 / 2, 0, 1.349 / 2])


def test_hats_span_every_linear_spline_on_their_knots():
    x = np.linspace(0, 1, 41)
    observations, schema = numeric(x)
    table = dense(state_features("splines:5", observations, schema)(observations))
    assert table.shape == (41, 5)
    for knot in (0.25, 0.5, 0.75):
        kinked = np.maximum(x - knot, 0)
        weights = np.linalg.lstsq(table, kinked)[0]
        np.testing.assert_allclose(table @ weights, kinked, atol=1e-12)
    assert np.linalg.matrix_rank(table) == 5


def test_knots_that_frequent_numbers_would_take_are_put_elsewhere():
    x = np.concatenate([np.zeros(900), np.linspace(0.01, 1, 100)])
    observations, schema = numeric(x)
    assert state_features("splines:8", observations, schema).num_features == 8


def test_bins_hold_equally_many_states_and_frequent_numbers_alone():
    rng = np.random.default_rng(0)
    x = np.concatenate([np.zeros(500), rng.exponential(size=500)])
    observations, schema = numeric(x)
    table = dense(state_features("bins:4", observations, schema)(observations))[:, 1:]
    assert (table.sum(axis=1) == 1).all()
    np.testing.assert_array_equal(table[:, 0] == 1, x == 0)
    assert table.shape[1] <= 4
    even, schema = numeric(rng.normal(size=1000))
    np.testing.assert_array_equal(dense(state_features("bins:8", even, schema)(even)).sum(axis=0)[1:], np.full(8, 125))


@pytest.mark.parametrize(("frequent", "others"), [(0, 1), (1, 0), (0.5, 1)])
def test_a_frequent_number_has_its_own_bin_wherever_it_lies(frequent, others):
    x = np.concatenate([np.full(700, frequent), np.linspace(0.01, 0.99, 300) * (1 if others else 0.9)])
    observations, schema = numeric(x)
    table = dense(state_features("bins:5", observations, schema)(observations))
    mine = table[0]
    alone = (table == mine).all(axis=1)
    np.testing.assert_array_equal(alone, x == frequent)


def test_few_numbers_have_a_bin_and_a_hat_each():
    observations, schema = numeric([0, 0, 0, 0, 0, 0, 0, 1, 2])
    for name in ("bins:5", "splines:5", "fourier:5"):
        table = dense(state_features(name, observations, schema)(observations))
        assert np.linalg.matrix_rank(table) == 3, name
        assert table.shape[1] == (4 if name.startswith("bins") else 3)  # all bins, and a constant


def test_fourier_has_products_of_two_columns():
    observations, schema = numeric(*np.random.default_rng(0).random((2, 500)))
    table = state_features("fourier:2", observations, schema)(observations)
    assert table.shape == (500, 1 + 4 + 1)
    np.testing.assert_allclose(table[:, 5], table[:, 1] * table[:, 3])
    np.testing.assert_allclose(np.abs(table[:, :5]).max(axis=0), 1)


def test_bumps_and_random_features_fit_what_no_sum_over_columns_can():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (2000, 2))
    target = np.tanh(3 * x[:, 0] * x[:, 1])
    observations, schema = numeric(*x.T)
    missed = {}
    for name in ("splines:16", "rbf:60", "random:60", "fourier:6"):
        table = dense(state_features(name, observations, schema)(observations))
        train, test = table[:1000], table[1000:]
        missed[name] = np.std(target[1000:] - test @ np.linalg.lstsq(train, target[:1000], rcond=1e-10)[0])
    assert missed.pop("splines:16") > 0.9 * target.std()
    assert max(missed.values()) < 0.1 * target.std(), missed


def test_bumps_are_no_more_than_there_are_states():
    observations, schema = numeric([0, 1, 2, 0, 1, 2])
    features = state_features("rbf:50", observations, schema)
    assert features.num_features == 4
    assert np.linalg.matrix_rank(features(observations)) == 3


def test_levels_and_their_combinations_are_indicators_and_unknown_ones_zero():
    codes = np.stack([np.arange(400) % 3, np.arange(400) % 2], axis=1)
    observations, schema = categorical(codes[codes.sum(axis=1) > 0], 3, 2)
    features = state_features("bins", observations, schema)
    assert features.num_features == 1 + 3 + 2 + 5
    strange, _ = categorical([[0, 0], [-1, 1], [2, 1]], 3, 2)
    table = dense(features(strange))
    np.testing.assert_array_equal(table[:, 1:6], [[1, 0, 0, 1, 0], [0, 0, 0, 0, 1], [0, 0, 1, 0, 1]])
    np.testing.assert_array_equal(table[:, 6:].sum(axis=1), [0, 0, 1])
    wide = dense(features(observations))[:, 6:]
    assert (wide.sum(axis=1) == 1).all()
    assert len(np.unique(np.concatenate([observations.codes, wide.argmax(axis=1)[:, None]], axis=1), axis=0)) == 5


def test_many_combinations_have_no_indicators():
    rng = np.random.default_rng(0)
    observations, schema = categorical(rng.integers(0, 30, (2000, 2)), 30, 30)
    features = state_features("bins", observations, schema)
    assert features.num_features == 61
    assert state_features("splines:4", observations, schema).num_features == 61


def test_a_state_of_categories_alone_has_one_candidate():
    observations, schema = categorical(np.arange(1000)[:, None] % 700, 700)
    assert candidates(observations, schema, 1000) == ["bins:10"]
    features = state_features(None, observations, schema)
    assert features.name == "bins:10"
    table = features(observations)
    assert sparse.issparse(table)
    np.testing.assert_array_equal(table.toarray()[:, 1:], np.eye(700)[np.arange(1000) % 700])


def test_cells_hold_states_that_are_near_each_other():
    rng = np.random.default_rng(1)
    middles = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0], [9.0, 9.0]])
    group = rng.integers(4, size=400)
    observations, schema = numeric(*(middles[group] + 0.1 * rng.normal(size=(400, 2))).T)
    table = dense(state_features("cells:4", observations, schema)(observations))[:, 1:]
    assert (table.sum(axis=1) == 1).all()
    cells = table.argmax(axis=1)
    assert len({(g, c) for g, c in zip(group, cells, strict=True)}) == 4


@pytest.mark.parametrize("num_rows", [600, 3_000, 10_000, 1_000_000])
def test_candidates_fit_the_number_of_rows(num_rows):
    observations = observed()
    names = candidates(observations, SCHEMA, num_rows)
    assert 1 <= len(names) <= 8
    assert len(set(names)) == len(names)
    assert "columns" not in names
    for name in names:
        features = state_features(name, observations, SCHEMA)
        combinations = 6 * name.startswith("bins")
        assert features.num_features - combinations <= 1 + min(300, num_rows / 20), name
        assert features.name == name


def test_candidates_of_one_column_are_functions_of_it_alone():
    observations, schema = numeric(np.random.default_rng(0).normal(size=5000))
    names = candidates(observations, schema, 5000)
    assert names == ["splines:16", "splines:8", "bins:20", "fourier:6"]
    for name in names:
        table = dense(state_features(name, observations, schema)(observations))
        assert np.linalg.matrix_rank(table) == table.shape[1] - name.startswith("bins")


def test_a_tiny_log_has_a_small_candidate():
    observations, schema = numeric(*np.random.default_rng(0).normal(size=(12, 30)))
    assert candidates(observations, schema, 30) == ["rbf:3"]


def test_the_default_is_the_first_candidate():
    observations = observed()
    assert state_features(None, observations, SCHEMA).name == candidates(observations, SCHEMA, 600)[0]


def test_a_function_gets_the_state_as_numbers_and_a_constant_is_added_if_it_has_none():
    observations = observed()
    table = state_features(first_two, observations, SCHEMA)(observations)
    np.testing.assert_array_equal(table, np.column_stack([np.ones(600), observations.numbers[:, :2]]))
    np.testing.assert_array_equal(state_table(observations)[:, 4:], observations.codes)
    features = state_features(with_ones, observations, SCHEMA)
    assert features.num_features == 2
    np.testing.assert_array_equal(features(observations)[:, 1], np.full(600, 2.0))
    assert pickle.loads(pickle.dumps(features)).num_features == 2


def test_a_column_of_zeros_is_no_constant():
    features = state_features(lambda s: s[:, :2] * [1, 0], observed(), SCHEMA)
    np.testing.assert_array_equal(features(observed())[:, 0], np.ones(600))


def test_a_function_may_return_a_sparse_table():
    observations = observed()
    features = state_features(lambda s: sparse.csr_matrix(np.eye(600)[: len(s)]), observations, SCHEMA)
    table = features(observations)
    assert sparse.issparse(table)
    np.testing.assert_array_equal(table.toarray(), np.column_stack([np.ones(600), np.eye(600)]))


def test_features_that_are_fitted_are_used_as_they_are():
    observations = observed()
    fitted = state_features("rbf:5", observations, SCHEMA)
    assert state_features(fitted, observations.take(slice(10)), SCHEMA) is fitted


@pytest.mark.parametrize(
    "transformer", [SplineTransformer(n_knots=4), KBinsDiscretizer(30, quantile_method="averaged_inverted_cdf")]
)
def test_a_transformer_is_copied_and_fitted(transformer):
    observations, schema = numeric(*np.random.default_rng(0).normal(size=(3, 500)))
    features = state_features(transformer, observations, schema)
    table = features(observations)
    assert features.name == type(transformer).__name__
    assert not hasattr(transformer, "n_features_in_")
    wanted = dense(transformer.fit_transform(state_table(observations)))
    np.testing.assert_allclose(dense(table), np.column_stack([np.ones(500), wanted]))
    assert sparse.issparse(table) == isinstance(transformer, KBinsDiscretizer)
    again = pickle.loads(pickle.dumps(features))
    np.testing.assert_array_equal(dense(again(observations)), dense(table))


@pytest.mark.parametrize(
    "name", ["spline", "bins:1", "rbf:0", "columns:3", "splines:", "fourier:x", "bins:-4", 7, None]
)
def test_bad_names_are_told_what_is_allowed(name):
    given = SplineTransformer if name is None else name
    with pytest.raises(ValueError, match=r"features must be one of 'columns', 'bins:10', .* a function .*, got"):
        state_features(given, observed(), SCHEMA)


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (lambda s: s[1:], r"features must return a table of 600 rows, .* got shape \(599, 6\)"),
        (lambda s: s[:, 0], r"features must return a table of 600 rows, .* got shape \(600,\)"),
        (lambda s: s[:, :0], r"a column at least, got shape \(600, 0\)"),
        (lambda s: s * np.inf, "features must return finite numbers, got"),
        (lambda s: [["text"]] * len(s), "features must return a table of numbers, .* got list"),
    ],
)
def test_bad_tables_of_functions_are_told(function, sentence):
    with pytest.raises(ValueError, match=sentence), np.errstate(invalid="ignore"):
        state_features(function, observed(), SCHEMA)


def test_a_function_must_always_return_as_many_columns():
    observations = observed()
    features = state_features(lambda s: np.eye(700)[: len(s), : len(s)], observations, SCHEMA)
    with pytest.raises(ValueError, match="features must always return as many columns, got 10 and once 600"):
        features(observations.take(slice(10)))


def test_observations_must_have_the_columns_of_the_schema_and_be_finite():
    observations = observed()
    with pytest.raises(ValueError, match="observations must hold a state at least, of 4 numbers and 2 codes"):
        state_features("columns", observations.take(slice(0)), SCHEMA)
    fitted = state_features("columns", observations, SCHEMA)
    with pytest.raises(ValueError, match="observations must have 4 numbers, got 1"):
        fitted(Observations(np.ones((3, 1)), np.zeros((3, 2), np.int32)))
    with pytest.raises(ValueError, match="observations must be finite, got nan"):
        state_features("columns", Observations(observations.numbers * np.nan, observations.codes), SCHEMA)
