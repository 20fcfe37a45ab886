"""The transforms of returns are uniform for the distribution they are from, and for no other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from cramerl import Support, project
from cramerl.linear.logs.calibration import Calibration, pit_values, uniformity

# What draws returns: spread out, at three values (two of them between atoms), often exactly 0, and beyond the support.
DRAWS = {
    "spread": lambda rng, n: rng.gamma(2.0, 1.0, n),
    "few": lambda rng, n: rng.choice([0.3, 1.0, 2.71], p=[0.5, 0.3, 0.2], size=n),
    "zero": lambda rng, n: np.where(rng.random(n) < 0.6, 0.0, rng.exponential(2.0, n)),
    "beyond": lambda rng, n: rng.normal(2.0, 6.0, n),
}
SUPPORT = Support([0.0, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0])


def projected(returns: np.ndarray) -> np.ndarray:
    """The distribution of returns on the support."""
    return project(SUPPORT, returns, np.full(len(returns), 1 / len(returns)))


@pytest.mark.parametrize("kind", DRAWS)
def test_transforms_are_uniform_for_the_true_distribution_only(kind):
    rng, n = np.random.default_rng(0), 4000
    law, returns = projected(DRAWS[kind](rng, 400_000)), DRAWS[kind](rng, n)
    right = Calibration.of(SUPPORT, np.tile(law, (n, 1)), returns, np.arange(n))
    assert right.p_value > 0.01
    np.testing.assert_allclose(list(right.coverage.values()), list(right.coverage), atol=0.025)
    assert list(right.coverage) == [0.5, 0.8, 0.9, 0.95]
    shifted = Calibration.of(SUPPORT, np.tile(law, (n, 1)), returns + 0.5, np.arange(n))
    assert shifted.p_value < 1e-6
    assert shifted.statistic > right.statistic


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000), st.floats(-3, 12))
def test_transforms_lie_in_the_jumps_next_to_the_return(seed, value):
    law = np.random.default_rng(seed).dirichlet(np.full(7, 0.3))
    (found,) = pit_values(SUPPORT, law[None], np.array([value]), seed)
    below = np.concatenate([[0.0], np.cumsum(law)])
    left = max(int(np.searchsorted(SUPPORT.atoms, value, side="right")) - 1, 0)
    right = min(int(np.searchsorted(SUPPORT.atoms, value, side="left")), 6)
    assert below[min(left, right)] - 1e-12 <= found <= below[max(left, right) + 1] + 1e-12


def test_the_seed_decides():
    law, returns = np.full((50, 7), 1 / 7), np.linspace(0, 8, 50)
    np.testing.assert_array_equal(pit_values(SUPPORT, law, returns, 1), pit_values(SUPPORT, law, returns, 1))
    assert (pit_values(SUPPORT, law, returns, 1) != pit_values(SUPPORT, law, returns, 2)).any()


def test_first_rows_of_episodes_are_tested():
    """In episodes that end with probability 0.1 and cost 1 a step, all rows have the same distribution of returns."""
    rng, support = np.random.default_rng(0), Support.uniform(-80, 0, 41)
    law = project(support, -rng.geometric(0.1, 400_000).astype(float), np.full(400_000, 1 / 400_000))
    rejected = 0
    for seed in range(100):
        lengths = rng.geometric(0.1, 100)
        returns = np.concatenate([-np.arange(length, 0.0, -1.0) for length in lengths])
        groups = np.repeat(np.arange(100), lengths)
        pit = pit_values(support, np.tile(law, (len(returns), 1)), returns, seed)
        statistic, p_value = uniformity(pit, groups)
        assert (statistic, p_value) == stats.kstest(pit[np.cumsum(lengths) - lengths], "uniform")[:2]
        rejected += p_value < 0.05
    assert rejected <= 12


def test_what_is_wrong_is_named():
    law = np.full((2, 7), 1 / 7)
    with pytest.raises(ValueError, match=r"probs must have a last axis of 7 \(the atoms of the support\)"):
        pit_values(SUPPORT, law[:, 1:], np.zeros(2))
    with pytest.raises(ValueError, match=r"for each of the returns \(m,\), got shapes \(2, 7\) and \(3,\)"):
        pit_values(SUPPORT, law, np.zeros(3))
    with pytest.raises(ValueError, match=r"masses >= 0 of total 1, got a smallest mass of 0.285714 and totals from 2"):
        pit_values(SUPPORT, 2 * law, np.zeros(2))
    with pytest.raises(ValueError, match="returns must be finite, got nan"):
        pit_values(SUPPORT, law, np.array([0.0, np.nan]))
    with pytest.raises(ValueError, match=r"groups must have one value for each of pit, shape \(2,\), got \(3,\)"):
        uniformity(np.zeros(2), np.zeros(3))
    assert np.isnan(uniformity(np.zeros(0), np.zeros(0))).all()
