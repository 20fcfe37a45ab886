"""What is read off an estimated distribution is of one proper distribution, and its errors follow the delta method."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import SUPPORTS

from cramerl import Support
from cramerl.linear.logs.estimates import Estimate, ReturnDistribution
from cramerl.linear.logs.influence import HeightInfluence
from cramerl.measures import cvar, nearest_distribution, quantile

SUPPORT = Support([-2.0, -1.0, 0.0, 0.5, 2.0, 5.0])


def influence(rng: np.random.Generator, atoms: int, episodes: int = 40, scale: float = 0.01) -> HeightInfluence:
    parts = scale * rng.normal(size=(episodes, atoms - 1))
    return HeightInfluence(parts.T @ parts, parts, episodes)


def distribution(seed: int, support: Support = SUPPORT, noise: float = 0.0, level: float = 0.95) -> ReturnDistribution:
    rng = np.random.default_rng(seed)
    masses = rng.dirichlet(np.ones(support.num_atoms)) + noise * rng.normal(size=support.num_atoms)
    return ReturnDistribution(support, masses, level, influence(rng, support.num_atoms))


@given(st.integers(0, 10**6), st.sampled_from(sorted(SUPPORTS)), st.sampled_from([0.0, 0.1, 2.0, 100.0]))
def test_all_figures_are_of_one_proper_distribution(seed, name, noise):
    support = SUPPORTS[name]
    found = distribution(seed, support, noise)
    atoms = support.atoms
    np.testing.assert_allclose(found.probs, nearest_distribution(support, found.masses))
    assert found.probs.min() >= 0
    assert found.probs.sum() == pytest.approx(1)
    assert found.mean.value == pytest.approx(found.probs @ atoms)
    assert found.cvar(1.0).value == pytest.approx(found.mean.value)
    assert found.cvar(0.3).value == pytest.approx(float(cvar(support, found.probs, 0.3)))
    assert found.quantile(0.3).value == float(quantile(support, found.probs, 0.3))
    for k, atom in enumerate(atoms):
        assert found.cdf(atom).value == pytest.approx(found.probs[: k + 1].sum(), abs=1e-12)
        assert found.below(atom).value == pytest.approx(found.probs[:k].sum(), abs=1e-12)


@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.5, 20.0]), st.sampled_from(["even", "uneven"]))
def test_figures_are_ordered_and_stay_on_the_support(seed, noise, name):
    support = SUPPORTS[name]
    found = distribution(seed, support, noise)
    low, high = support.v_min - 1e-9, support.v_max + 1e-9
    levels, places = np.linspace(0.05, 1, 9), np.linspace(support.v_min - 1, support.v_max + 1, 12)
    quantiles, tails = [found.quantile(q) for q in levels], [found.cvar(q) for q in levels]
    heights, below = [found.cdf(z) for z in places], [found.below(z) for z in places]
    for estimates, least, most in (
        (quantiles, low, high),
        (tails, low, high),
        ([found.mean], low, high),
        (heights, -1e-9, 1 + 1e-9),
        (below, -1e-9, 1 + 1e-9),
    ):
        assert all(least <= e.low <= e.value + 1e-9 and e.value <= e.high + 1e-9 and e.high <= most for e in estimates)
        assert (np.diff([e.value for e in estimates]) >= -1e-9).all()
    assert all(tail.value <= q.value + 1e-9 for tail, q in zip(tails, quantiles, strict=True))
    assert all(one.value <= other.value + 1e-12 for one, other in zip(below, heights, strict=True))
    assert found.cdf(support.v_max) == (1.0, 1.0, 1.0, 0.0)
    assert found.below(support.v_min) == (0.0, 0.0, 0.0, 0.0)


def test_errors_are_those_of_figures_that_move_with_their_heights():
    """Oracles: the influence of every episode on the figure by finite differences, and many draws of the heights."""
    found = distribution(3)
    parts, step = found.influence.influences, 1e-6
    figures = {"mean": (), "cvar": (0.4,), "cdf": (0.5,), "below": (2.0,)}

    def figure(heights: np.ndarray, name: str, at: tuple[float, ...]) -> float:
        masses = np.diff(heights, prepend=0.0, append=1.0)
        moved = ReturnDistribution(SUPPORT, masses, 0.95, None)
        return moved.mean.value if name == "mean" else getattr(moved, name)(*at).value

    little = np.random.default_rng(0).multivariate_normal(np.zeros(5), found.influence.covariance, 1500) / 100
    for name, at in figures.items():
        value = figure(found.heights, name, at)
        slopes = [(figure(found.heights + step * part, name, at) - value) / step for part in parts]
        estimate = found.mean if name == "mean" else getattr(found, name)(*at)
        assert estimate.se == pytest.approx(np.sqrt(np.sum(np.square(slopes))), rel=1e-3)
        drawn = [figure(found.heights + row, name, at) for row in little]
        assert estimate.se == pytest.approx(100 * np.std(drawn), rel=0.1)
        moved: Any = found.moved(found.gradient(name, at[0] if at else None))
        np.testing.assert_allclose(moved, slopes, atol=1e-6)


def test_heights_that_were_pooled_move_together():
    """Where signed heights fall they are replaced by their mean, and errors are of that mean."""
    masses, support = np.array([0.4, -0.2, 0.3, 0.5]), Support([0.0, 1.0, 2.0, 3.0])
    parts = np.array([[0.3, 0.0, 0.0], [0.0, 0.1, 0.0], [0.0, 0.0, 0.2]])
    found = ReturnDistribution(support, masses, 0.95, HeightInfluence(parts.T @ parts, parts, 3))
    np.testing.assert_allclose(found.heights, [0.3, 0.3, 0.5])
    assert found.cdf(0).se == found.cdf(1).se == pytest.approx(np.hypot(0.3, 0.1) / 2)
    assert found.cdf(2).se == pytest.approx(0.2)
    beyond = ReturnDistribution(support, np.array([-0.5, 0.5, 0.5, 0.5]), 0.95, found.influence)
    assert beyond.cdf(0) == (0.0, 0.0, 0.0, 0.0)  # cut at zero, where it does not move


def test_the_interval_of_a_quantile_inverts_the_band():
    found = distribution(5, Support.uniform(-3, 3, 61))
    low, high = found.band()
    assert (low <= found.heights).all()
    assert (found.heights <= high).all()
    for level in (0.1, 0.5, 0.9):
        estimate, atoms = found.quantile(level), found.support.atoms
        inside = atoms[:-1][(low < level) & (high >= level)]
        assert estimate.low <= inside.min() <= inside.max() <= estimate.high + 0.1
        assert estimate.se > 0


def test_wider_levels_give_wider_intervals():
    narrow, wide = distribution(7, level=0.5), distribution(7, level=0.99)
    assert wide.mean.se == narrow.mean.se
    assert wide.mean.high - wide.mean.low > 3 * (narrow.mean.high - narrow.mean.low)
    assert narrow.mean.high - narrow.mean.value == pytest.approx(0.6808 * narrow.mean.se, rel=1e-3)  # t with 39


def test_without_intervals_there_are_values_only():
    found = ReturnDistribution(SUPPORT, np.full(6, 1 / 6), 0.95, None)
    for estimate in (found.mean, found.cvar(0.2), found.quantile(0.2), found.cdf(0.0)):
        assert np.isfinite(estimate.value)
        assert np.isnan(estimate[1:]).all()
    assert found.cdf(9.0).value == 1.0
    assert found.moved(np.ones(5)) is None
    assert np.isnan(found.band()).all()


def test_in_words():
    assert str(Estimate(1.23456, 1.0, 1.5, 0.1)) == "1.235 [1, 1.5]"
    found = distribution(0)
    assert repr(found).startswith(f"ReturnDistribution(mean {found.mean}, 5% ")
    assert "<svg" in found._repr_html_()


@pytest.mark.parametrize(
    ("name", "given", "match"),
    [
        ("quantile", 1.5, r"level must lie in \[0, 1\], got 1\.5"),
        ("quantile", None, "level must be a finite number, got None"),
        ("cvar", 0, "level must be above 0 for CVaR, got 0"),
        ("cvar", "a tenth", "level must be a finite number, got 'a tenth'"),
        ("cdf", np.nan, "z must be a finite number, got nan"),
        ("below", True, "z must be a finite number, got True"),
    ],
)
def test_what_is_wrong_is_named(name, given, match):
    with pytest.raises(ValueError, match=match):
        getattr(distribution(0), name)(given)


def test_what_a_gradient_is_of_is_named():
    with pytest.raises(ValueError, match="what must be 'mean', or 'cvar', 'cdf' or 'below' with a number, got 'mode'"):
        distribution(0).gradient("mode", 1.0)


def test_between_atoms_intervals_hold_what_a_straight_line_gives():
    """Of returns that are spread evenly, where the log has no doubt."""
    support, masses = Support.uniform(0, 10, 11), np.full(11, 0.1)
    masses[[0, -1]] = 0.05
    still = HeightInfluence(np.zeros((10, 10)), np.zeros((5, 10)), 5)
    found, stepped = (ReturnDistribution(support, masses, 0.95, still, on_atoms=on) for on in (False, True))
    for z in (2.0, 3.3, 4.5, 7.9):
        held = found.cdf(z)
        assert held.low - 1e-9 <= z / 10 <= held.high + 1e-9
        assert held.value == stepped.cdf(z).value == stepped.cdf(z).low == stepped.cdf(z).high
    for level in (0.2, 0.47, 0.75):
        held = found.quantile(level)
        assert held.low - 1e-9 <= 10 * level <= held.high + 1e-9
        assert held.low <= held.value <= held.high
    assert found.mean == stepped.mean


def test_a_jump_is_not_spread():
    support, masses = Support.uniform(0, 10, 11), np.full(11, 0.03)
    masses[0] = 0.7
    found = ReturnDistribution(support, masses, 0.95, HeightInfluence(np.zeros((10, 10)), np.zeros((5, 10)), 5), False)
    assert found.cdf(0.0).low > 0.65
