"""What is said about a log: drift, widening by the grid, and regularisation that spares the constant."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from cramerl import Support
from cramerl.linear import DistributionalLSTD, with_bias
from cramerl.linear.log_variances import variance_ratio
from cramerl.linear.transitions import make_rows
from cramerl.measures import nearest_distribution


def customers(rng: np.random.Generator, count: int = 400, weeks: int = 40):
    """A shop's log: log of age and of what was bought so far only ever grow, and nobody is seen to leave."""
    bought = np.cumsum(rng.random((count, weeks + 1)) < rng.beta(0.5, 8, count)[:, None], axis=1)
    age = np.broadcast_to(np.arange(1.0, weeks + 2), bought.shape)
    columns = np.stack([np.log1p(bought), np.log1p(age), age / weeks], axis=-1)
    spend = np.diff(bought, axis=1) * rng.exponential(30, (count, weeks))
    return with_bias(columns[:, :-1].reshape(-1, 3)), spend.ravel(), with_bias(columns[:, 1:].reshape(-1, 3))


def drift(model: DistributionalLSTD) -> list[str]:
    return [sentence for sentence in model.certificate_.sentences if "spectral radius" in sentence]


def test_drifting_columns_are_told():
    with pytest.warns(UserWarning, match="unstable"):
        model = DistributionalLSTD(Support.uniform(0, 3000, 11), 0.99).fit(*customers(np.random.default_rng(0)))
    assert model.certificate_.radius > 0.995
    (said,) = drift(model)
    assert f"{model.certificate_.radius:.4f}" in said
    assert "well above the discount 0.99" in said


def test_a_log_of_whole_episodes_never_drifts():
    """Its next rows are among its rows, so the radius is at most the discount."""
    for seed in range(50):
        rng = np.random.default_rng(seed)
        size, discount = int(rng.integers(3, 12)), float(rng.choice([0.5, 0.9, 0.99]))
        chances, end = rng.dirichlet(np.full(size, 0.5), size), rng.uniform(0.02, 0.5)
        rows, state = [], 0
        while len(rows) < 150 or not rows[-1][2]:
            following, ended = int(rng.choice(size, p=chances[state])), bool(rng.random() < end)
            rows.append((state, following, ended))
            state = int(rng.integers(size)) if ended else following
        states, after, ends = np.array(rows).T
        phi = with_bias(rng.normal(size=(size, 2)))
        model = DistributionalLSTD(Support.uniform(-9, 9, 5), discount)
        model.fit(phi[states], rng.normal(size=len(rows)), phi[after], ends)
        assert model.certificate_.radius <= discount + 1e-9
        assert not drift(model)


def chain(rewards: np.ndarray, length: int = 50):
    x = np.tile(np.arange(length), len(rewards) // length)
    return np.eye(length)[x], rewards[: len(x)], np.eye(length)[(x + 1) % length], x == length - 1


def test_widening_by_the_grid_is_measured():
    """A chain of fifty steps with a reward of -1 +- 0.3: with 51 atoms sd 2.7 where 1.69 is true."""
    rewards = np.random.default_rng(1).choice([-1.3, -0.7], 20_000)
    data, truth = chain(rewards), 0.3 * np.sqrt(np.sum(0.99 ** (2 * np.arange(50))))
    found = {}
    for atoms in (51, 201):
        model = DistributionalLSTD(Support.uniform(-47, 1, atoms), 0.99).fit(*data)
        masses, z = model.predict_masses(data[0][:1])[0], model.support_.atoms
        found[atoms] = np.sqrt(masses @ z**2 - (masses @ z) ** 2), model.certificate_
    assert truth == pytest.approx(1.69, abs=0.01)
    assert found[51][0] > 1.5 * truth
    assert found[51][1].variance_ratio > 2
    widened = [s for s in found[51][1].sentences if s.startswith("The grid widens distributions: their variance is")]
    assert f"{found[51][1].variance_ratio:.3g} times" in widened[0]
    assert found[201][0] < 1.1 * truth
    assert 1 < found[201][1].variance_ratio < 1.2
    assert not any("The grid widens" in sentence for sentence in found[201][1].sentences)


@pytest.mark.parametrize("normalisation", ["before", "affine"])
def test_the_variance_without_a_grid_is_that_of_the_process(normalisation):
    """A ratio of one where the rewards lie on the atoms and nothing moves between them; moments or passes."""
    rng = np.random.default_rng(2)
    states, following = rng.integers(0, 3, (2, 400))
    data = np.eye(3)[states], rng.integers(-2, 3, 400).astype(float), np.eye(3)[following], rng.random(400) < 0.5
    support = Support.uniform(-60, 60, 121)
    model = DistributionalLSTD(support, 1.0, normalisation=normalisation).fit(*data)
    assert model.certificate_.variance_ratio == pytest.approx(1.0, abs=1e-6)
    sums, rows = model._sums, make_rows(*data)
    assert sums is not None
    sums.collector = None
    means = model.weights_ @ support.atoms
    passed = variance_ratio(rows, sums, model._basis_, means, model.weights_, normalisation, 0.0)
    assert passed == pytest.approx(1.0, abs=1e-6)


def test_strong_regularisation_leads_to_one_distribution_for_all():
    rng = np.random.default_rng(3)
    x = with_bias(rng.normal(size=(500, 2)))
    rewards = 3 + x[:, 1] + rng.normal(size=500)
    ended = np.ones(500, bool)
    model = DistributionalLSTD(Support.uniform(-3, 9, 25), 0.9, regularisation=1e9).fit(x, rewards, x, ended)
    np.testing.assert_allclose(model.predict(x), rewards.mean(), atol=1e-5)
    masses = model.predict_masses(x)
    assert masses.min() >= -1e-6
    assert masses.max() <= 1 + 1e-6
    assert model.certificate_.sentences[0].startswith("A constant is in the span")


@pytest.mark.parametrize("regularisation", [1e-9, 0.1, 10.0])
def test_a_column_of_ones_is_never_asked_for_twice(regularisation):
    rng = np.random.default_rng(4)
    x = rng.normal(size=(400, 2))
    data = x[:, 1], x, x[:, 1] > 1
    model = DistributionalLSTD(None, 0.9, regularisation=regularisation).fit(
        with_bias(x), data[0], with_bias(x), data[2]
    )
    assert not any("add a column" in sentence for sentence in model.certificate_.sentences)
    bare = DistributionalLSTD(None, 0.9, regularisation=regularisation).fit(x, *data)
    assert "add a column of ones" in bare.certificate_.sentences[0]


def test_units_of_columns_do_not_matter():
    rng = np.random.default_rng(5)
    x, rewards, ended = rng.normal(size=(300, 3)), rng.normal(size=300), rng.random(300) < 0.3
    units = np.array([1000.0, 1e-3, 7.0])
    predictions = []
    for table in (x, x * units, x * units + [5.0, 0.0, -1.0]):  # shifts as well, where there is a constant
        model = DistributionalLSTD(Support.uniform(-9, 9, 9), 0.9, regularisation=0.3)
        rows = with_bias(table)
        predictions.append(model.fit(rows, rewards, np.roll(rows, 1, axis=0), ended).predict_masses(rows))
    np.testing.assert_allclose(predictions[1], predictions[0], atol=1e-8)
    np.testing.assert_allclose(predictions[2].sum(axis=1), 1, atol=1e-8)


def test_indicators_are_shrunk_by_how_often_they_occur():
    """With a constant: a group's distance to the pooled mean shrinks by c / (c + rho n), here with an empty rest."""
    counts, rho = np.array([5, 45, 450]), 0.02
    group = np.repeat(np.arange(3), counts)
    x, rewards = np.eye(3)[group], np.array([4.0, -2.0, 1.0])[group]
    model = DistributionalLSTD(Support.uniform(-5, 5, 11), 0.9, regularisation=rho)
    far = np.abs(model.fit(x, rewards, x, np.ones(500, bool)).predict(np.eye(3)) - rewards.mean())
    kept = far / np.abs(np.array([4.0, -2.0, 1.0]) - rewards.mean())
    assert kept[0] < kept[1] < kept[2]
    # The constant is free, so what shrinks is the part beyond it, each group by about its own count.
    np.testing.assert_allclose(kept[:2], counts[:2] / (counts[:2] + rho * 500), atol=0.05)


def test_means_of_proper_distributions_are_those_of_the_probabilities():
    data = customers(np.random.default_rng(6), 100, 20)
    support = Support.uniform(0, 500, 21)
    model = DistributionalLSTD(support, 0.9, regularisation=0.01).fit(*data)
    proba = model.predict_proba(data[0])
    np.testing.assert_allclose(proba, nearest_distribution(support, model.predict_masses(data[0])), atol=1e-12)
    assert proba.min() >= 0
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    np.testing.assert_allclose(model.predict_mean(data[0]), proba @ support.atoms)
    np.testing.assert_allclose(model.predict_cvar(data[0], 1.0), model.predict_mean(data[0]))
    assert "predict_mean" in str(DistributionalLSTD.predict.__doc__)
    assert model.predict_mean(sparse.csr_array(data[0][:5])).shape == (5,)
