"""Logs whose equations explode: proper next distributions keep the masses bounded, and no explosion goes unsaid."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from cramerl import Support
from cramerl.linear import DistributionalLSTD, with_bias
from cramerl.linear.constrained import accelerated, proper_distributions
from cramerl.linear.log_certificates import MOST_MASS


def drifting(seed: int, n: int = 40, d: int = 6):
    """Few rows, and next features that are larger than the features and lead elsewhere, as for another policy."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    following = rng.uniform(0.5, 1.6) * x @ np.linalg.qr(rng.normal(size=(d, d)))[0] + 0.5 * rng.normal(size=(n, d))
    return with_bias(x), rng.normal(size=n), with_bias(following), rng.random(n) < 0.05


def exploding():
    """A data set whose linear solution has masses far beyond one."""
    rng = np.random.default_rng(0)
    states = np.array([0, 1] * 20 + [2])
    features = np.array([[1.0, 1.0], [1.0, 2.0], [1.0, 0.0]])
    following = np.where(states == 0, 1, np.where(states == 1, 1, 2))
    return features[states], rng.normal(size=41), 1.2 * features[following], np.zeros(41, bool)


def test_an_explosion_warns_and_is_solved_with_proper_next_distributions():
    data, support = exploding(), Support.uniform(-10, 10, 21)
    with pytest.warns(UserWarning, match="no fixed point was found that can be used"):
        signed = DistributionalLSTD(support, 0.95, next_distribution="signed").fit(*data)
    assert np.abs(signed.predict_masses(data[0])).max() > 10
    assert any("do not use them" in sentence for sentence in signed.certificate_.sentences)
    with pytest.warns(UserWarning, match="equations for distributions are unstable"):
        model = DistributionalLSTD(support, 0.95).fit(*data)
    assert model.method_ == "constrained"
    assert np.abs(model.predict_masses(data[0])).max() < 10
    assert model.certificate_.mass_size < MOST_MASS
    with pytest.raises(ValueError, match="needs passes over the data"):
        DistributionalLSTD(support, 0.95, next_distribution="proper").partial_fit(*data).solve()


@pytest.mark.parametrize("first", [0, 100, 200])
def test_no_drifting_log_explodes_without_a_word(first):
    support, exploded = Support.uniform(-10, 10, 11), 0
    for seed in range(first, first + 100):
        data = drifting(seed)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = DistributionalLSTD(support, 0.95).fit(*data)
        if np.abs(model.predict_masses(data[0])).max() > 10:
            exploded += 1
            told = [s for s in model.certificate_.sentences if "do not use" in s or "far off" in s]
            assert caught or told
        exploded += bool(caught)
    assert exploded > 5


@pytest.mark.parametrize("support", [Support.uniform(-1, 2, 6), Support([-1.0, 0.0, 0.5, 2.0, 2.5, 3.0])])
def test_proper_distributions_are_distributions(support):
    masses = np.random.default_rng(0).normal(size=(50, 6))
    masses += (1 - masses.sum(axis=1, keepdims=True)) / 6
    proper = proper_distributions(support, masses)
    assert proper.min() >= 0
    np.testing.assert_allclose(proper.sum(axis=1), 1)
    np.testing.assert_allclose(proper_distributions(support, proper), proper, atol=1e-12)


def test_where_nothing_is_signed_proper_next_distributions_change_nothing():
    """Tabular features: every fitted distribution is proper, so both fixed points are one."""
    rng = np.random.default_rng(1)
    states, following = rng.integers(0, 4, (2, 500))
    data = np.eye(4)[states], rng.normal(size=500), np.eye(4)[following], rng.random(500) < 0.1
    support = Support.uniform(-5, 5, 15)
    signed = DistributionalLSTD(support, 0.9).fit(*data)
    proper = DistributionalLSTD(support, 0.9, next_distribution="proper").fit(*data)
    assert proper.method_ == "constrained"
    np.testing.assert_allclose(proper.weights_, signed.weights_, atol=1e-6)


def test_extrapolation_needs_fewer_steps_than_steps_alone():
    rates, shift = np.array([0.99, 0.9, 0.5, -0.8]), np.ones(4)
    found, change, count = accelerated(lambda x: rates * x + shift, np.zeros(4), 1e-10, 100)
    assert change <= 1e-10
    assert count < 15  # alone: 2300
    np.testing.assert_allclose(found, shift / (1 - rates), rtol=1e-6)
