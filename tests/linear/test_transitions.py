"""Rows that differ in their discount and in how much they count, rows that are sparse, and returns without discount."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import SUPPORTS, project_by_loop
from scipy import sparse

from cramerl import Support
from cramerl.linear import DistributionalLSTD, transition_sums
from cramerl.linear.transitions import make_rows

UNEVEN, EVEN = SUPPORTS["uneven"], SUPPORTS["even"]


def logged(seed: int, n: int = 200):
    rng = np.random.default_rng(seed)
    x, following = rng.normal(size=(2, n, 3))
    x[:, 0] = following[:, 0] = 1.0
    return x, 2 * rng.normal(size=n), 0.5 * x + 0.5 * following, rng.random(n) < 0.15


def dense_twin(support: Support, data, discounts, weights) -> np.ndarray:
    """Every sample's own backup matrix in one Kronecker system, for *before*."""
    x, rewards, following, ended = data
    d, k = x.shape[1], support.num_atoms
    keep, even = np.eye(k) - 1 / k, np.full(k, 1 / k)
    matrix, right = np.kron(x.T @ (weights[:, None] * x), np.eye(k)), np.zeros((d, k))
    for phi, r, phi_next, last, discount, weight in zip(x, rewards, following, ended, discounts, weights, strict=True):
        if last:
            right += weight * np.outer(phi, project_by_loop(support, np.array([r]), np.ones(1)))
            continue
        moved = [project_by_loop(support, np.array([r + discount * z]), np.ones(1)) for z in support.atoms]
        turn = np.column_stack(moved)
        matrix -= weight * np.kron(np.outer(phi, phi_next), turn @ keep)
        right += weight * np.outer(phi, turn @ even)
    return np.linalg.solve(matrix, right.ravel()).reshape(d, k)


@pytest.mark.parametrize("support", [EVEN, UNEVEN], ids=["even", "uneven"])
@pytest.mark.parametrize("path", ["moments", "passes"])
def test_discounts_and_weights_of_rows(monkeypatch, support, path):
    data, rng = logged(0), np.random.default_rng(1)
    discounts, weights = rng.choice([0.3, 0.9], 200), rng.exponential(size=200)
    expected = dense_twin(support, data, discounts, weights)
    if path == "passes":
        monkeypatch.setattr(transition_sums, "MOST_NUMBERS", 12)
    model = DistributionalLSTD(support, 0.5).fit(*data, discounts=discounts, sample_weight=weights)
    assert (model._sums.collector is None) == (path == "passes")
    np.testing.assert_allclose(model.weights_, expected, atol=1e-9)
    if path == "moments":
        chunks = DistributionalLSTD(support, 0.5)
        for i in range(0, 200, 60):
            part = slice(i, i + 60)
            rows = [a[part] for a in data]
            chunks.partial_fit(*rows, discounts=discounts[part], sample_weight=weights[part])
        np.testing.assert_allclose(chunks.weights_, expected, atol=1e-9)


def test_discounts_of_any_value_are_solved_by_passes(monkeypatch):
    data, discounts = logged(2), np.random.default_rng(3).uniform(0.2, 0.95, 200)
    monkeypatch.setattr(transition_sums, "MOST_NUMBERS", 9 * 60)  # fewer groups than rows
    model = DistributionalLSTD(UNEVEN, 0.5).fit(*data, discounts=discounts)
    assert model._sums.collector is None
    np.testing.assert_allclose(model.weights_, dense_twin(UNEVEN, data, discounts, np.ones(200)), atol=1e-9)


@pytest.mark.parametrize("support", [None, UNEVEN], ids=["chosen", "given"])
@pytest.mark.parametrize("regularisation", [0.0, 0.2])
def test_a_weight_is_a_number_of_repetitions(support, regularisation):
    data, times = logged(4), np.random.default_rng(5).integers(0, 4, 200)
    repeated = [np.repeat(a, times, axis=0) for a in data]
    model, again = (DistributionalLSTD(support, 0.8, num_atoms=9, regularisation=regularisation) for _ in "ab")
    model.fit(*data, sample_weight=times)
    again.fit(*repeated)
    np.testing.assert_allclose(model.support_.atoms, again.support_.atoms, atol=1e-9)
    np.testing.assert_allclose(model.weights_, again.weights_, atol=1e-9)
    np.testing.assert_allclose(model.certificate_[:6], again.certificate_[:6], atol=1e-7)
    np.testing.assert_allclose(model.support_report_[:4], again.support_report_[:4], atol=1e-9)


@pytest.mark.parametrize("support", [None, Support([0.0, 1.0])], ids=["chosen", "two atoms"])
def test_survival_is_a_return_without_discount(support):
    """The reward is one at the end if it is a good one; from state i that has a chance that can be computed."""
    rng = np.random.default_rng(6)
    chance = np.array([[0.1, 0.5, 0.2, 0.2], [0.3, 0.2, 0.2, 0.3], [0.2, 0.2, 0.0, 0.6]])  # last column: the end
    good = np.array([0.9, 0.5, 0.2])
    survival = np.linalg.solve(np.eye(3) - chance[:, :3], chance[:, 3] * good)
    states = rng.integers(0, 3, 60_000)
    following = (rng.random(60_000)[:, None] > np.cumsum(chance[states], axis=1)).sum(axis=1)
    ended = following == 3
    rewards = ended * (rng.random(60_000) < good[states])
    data = np.eye(3)[states], rewards, np.eye(4)[following][:, :3], ended
    model = DistributionalLSTD(support, 1.0, num_atoms=21).fit(*data)
    assert (model.support_.v_min, model.support_.v_max) == (0.0, 1.0)
    np.testing.assert_allclose(model.predict_proba(np.eye(3))[:, -1], survival, atol=0.02)
    np.testing.assert_allclose(model.predict(np.eye(3)), survival, atol=0.02)


@pytest.mark.parametrize("path", ["moments", "passes", "sparse matrices"])
@pytest.mark.parametrize("regularisation", [0.0, 0.1])
@pytest.mark.parametrize("support", [None, UNEVEN], ids=["chosen", "given"])
def test_sparse_features_say_what_dense_ones_say(monkeypatch, path, regularisation, support):
    rng = np.random.default_rng(7)
    states, following = rng.integers(0, 8, (2, 300))
    x, y = np.eye(8)[states], np.eye(8)[following]
    rewards, ended, weights = rng.normal(size=300), rng.random(300) < 0.2, rng.exponential(size=300)
    dense = DistributionalLSTD(support, 0.8, num_atoms=9, regularisation=regularisation)
    dense.fit(x, rewards, y, ended, sample_weight=weights)
    if path == "passes":
        monkeypatch.setattr(transition_sums, "MOST_NUMBERS", 64)
    if path == "sparse matrices":
        monkeypatch.setattr(transition_sums, "MOST_DENSE", 5)
    model = DistributionalLSTD(support, 0.8, num_atoms=9, regularisation=regularisation)
    model.fit(sparse.csr_array(x), rewards, sparse.csr_matrix(y), ended, sample_weight=weights)
    ask = sparse.coo_array(x[:20])
    shrunk = path == "sparse matrices" and regularisation > 0  # there the constant is not spared
    if not shrunk:
        np.testing.assert_allclose(model.support_.atoms, dense.support_.atoms, atol=1e-6)
        np.testing.assert_allclose(model.weights_, dense.weights_, atol=1e-6)
        np.testing.assert_allclose(model.certificate_[2:5], dense.certificate_[2:5], atol=1e-4)
        np.testing.assert_allclose(model.predict_quantile(ask, 0.3), dense.predict_quantile(x[:20], 0.3), atol=1e-6)
    assert model.predict_masses(ask).shape == (20, model.support_.num_atoms)


def test_many_dense_features_are_refused_and_so_are_other_normalisations(monkeypatch):
    monkeypatch.setattr(transition_sums, "MOST_DENSE", 2)
    data = logged(8)
    with pytest.raises(ValueError, match="X must be sparse with more than 2 columns, got 3 dense ones"):
        DistributionalLSTD(EVEN).fit(*data)
    rows = sparse.csr_array(data[0]), data[1], sparse.csr_array(data[2]), data[3]
    with pytest.raises(ValueError, match="normalisation must be 'before' with more than 2 features, got 'affine'"):
        DistributionalLSTD(EVEN, normalisation="affine").fit(*rows)


BAD_ROWS = {
    "discount": ({"discounts": [0.5, 1.5]}, r"discounts must lie in \[0, 1\], got 1.5"),
    "discounts": ({"discounts": [0.5]}, "discounts must have one entry for each of the 2 rows"),
    "negative": ({"sample_weight": [1.0, -1.0]}, "sample_weight must be >= 0 and not all zero, got a smallest"),
    "none": ({"sample_weight": [0.0, 0.0]}, "sample_weight must be >= 0 and not all zero"),
}


@pytest.mark.parametrize(("bad", "sentence"), BAD_ROWS.values(), ids=list(BAD_ROWS))
def test_bad_discounts_and_weights_are_refused(bad, sentence):
    with pytest.raises(ValueError, match=sentence):
        DistributionalLSTD().fit([[1.0], [1.0]], [0.0, 1.0], [[1.0], [1.0]], **bad)


def test_sparse_rows_are_cut_as_dense_ones_are():
    x, rewards, following, ended = logged(9, 20)
    rows = make_rows(sparse.csc_array(x), rewards, sparse.csr_array(following), ended, np.full(20, 0.5), np.arange(20))
    parts = list(rows.parts(7))
    assert [len(part.rewards) for part in parts] == [7, 7, 6]
    np.testing.assert_array_equal(sparse.vstack([part.features for part in parts]).toarray(), x)
    np.testing.assert_array_equal(np.concatenate([part.mass for part in parts]), np.arange(20))
    np.testing.assert_array_equal(parts[2].continuation(0.9), np.where(ended[14:], 0, 0.5))
