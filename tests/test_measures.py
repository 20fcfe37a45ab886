import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import SUPPORTS, gram_by_definition, proper, solve_quadratic_programme, supports, vectors

from cramerl import (
    Support,
    cdf,
    clipped_mass,
    cramer_distance_sq,
    cvar,
    mean,
    nearest_distribution,
    negative_mass,
    project_affine,
    quantile,
    rearranged_distribution,
    total_mass,
    variance,
    with_unit_mass,
)

signed = supports().flatmap(lambda s: st.tuples(st.just(s), vectors(s.num_atoms)))
levels = st.floats(0, 1)


@given(signed)
def test_sums(measure):
    support, q = measure
    z = support.atoms
    assert total_mass(support, q) == pytest.approx(sum(q), abs=1e-12)
    assert mean(support, q) == pytest.approx(sum(a * b for a, b in zip(z, q, strict=True)), abs=1e-11)
    np.testing.assert_allclose(cdf(support, q), [sum(q[: i + 1]) for i in range(len(q))], atol=1e-12)
    assert negative_mass(support, q) == pytest.approx(-sum(m for m in q if m < 0), abs=1e-12)
    centre = z @ q
    assert variance(support, q) == pytest.approx(
        sum(m * (a - centre) ** 2 for a, m in zip(z, q, strict=True)), abs=1e-8
    )


def test_moments_of_a_distribution_are_numpys(rng):
    support = SUPPORTS["uneven"]
    draws = rng.integers(0, 7, size=200)
    probs = np.bincount(draws, minlength=7) / 200
    assert mean(support, probs) == pytest.approx(support.atoms[draws].mean())
    assert variance(support, probs) == pytest.approx(support.atoms[draws].var())
    assert negative_mass(support, probs) == 0


@given(supports(), st.integers(0, 10**6), levels)
def test_quantile_of_a_distribution_is_numpys(support, seed, level):
    draws = np.random.default_rng(seed).integers(0, support.num_atoms, size=37)
    probs = np.bincount(draws, minlength=support.num_atoms) / 37
    expected = np.quantile(support.atoms[draws], level, method="inverted_cdf")
    assert quantile(support, probs, level) == expected


def test_quantile_is_not_moved_by_rounding():
    support = Support(np.arange(10.0))
    tenths = np.full(10, 0.1)  # cumulative sums 0.1, 0.2, 0.30000000000000004, ..., 0.7999999999999999, ...
    np.testing.assert_array_equal(quantile(support, tenths, np.arange(1, 11) / 10), np.arange(10.0))
    assert quantile(support, tenths, 1.0) == 9.0
    assert quantile(support, [0, 0, 0.5, 0, 0, 0.5, 0, 0, 0, 0], [0.0, 0.5, 0.50001, 1.0]).tolist() == [2, 2, 5, 5]


@given(signed, levels)
def test_quantile_of_signed_masses_is_the_first_crossing(measure, level):
    support, q = measure
    if q.sum() < 0.1:
        q = q + (1 - q.sum()) / q.size
    value = quantile(support, q, level)
    assert quantile(support, 3 * q, level) == value
    cumulative, slack = np.cumsum(q), 1e-12 * np.abs(q).sum()
    at = int(np.flatnonzero(support.atoms == value)[0])
    assert cumulative[at] >= level * q.sum() - slack
    assert (cumulative[:at] <= level * q.sum() + slack).all()


@given(supports(), st.integers(0, 10**6), st.floats(0.01, 1))
def test_cvar_of_a_distribution_three_ways(support, seed, level):
    probs = proper(np.random.default_rng(seed), support.num_atoms)
    value = cvar(support, probs, level)
    left, total = level, 0.0  # greedily take the worst outcomes
    for z, p in zip(support.atoms, probs, strict=True):
        taken = min(p, left)
        total, left = total + taken * z, left - taken
    assert value == pytest.approx((total + left * support.v_max) / level, abs=1e-9)
    # Rockafellar and Uryasev: max over c of c - E(c - Z)_+ / level, attained at an atom.
    dual = max(c - np.maximum(c - support.atoms, 0) @ probs / level for c in support.atoms)
    assert value == pytest.approx(dual, abs=1e-9)


@given(signed, st.floats(0.05, 1))
def test_cvar_is_the_average_quantile(measure, level):
    support, q = measure
    if q.sum() < 0.1:
        q = q + (1 - q.sum()) / q.size
    grid = (np.arange(4000) + 0.5) / 4000 * level
    average = quantile(support, q, grid).mean()
    assert cvar(support, q, level) == pytest.approx(average, abs=2e-3 * (support.v_max - support.v_min))


def test_cvar_at_the_ends():
    support, probs = Support([-1.0, 0.0, 5.0]), np.array([0.0, 0.25, 0.75])
    assert cvar(support, probs, 0.0) == pytest.approx(0.0)
    assert cvar(support, probs, 1.0) == pytest.approx(mean(support, probs))


@given(signed)
def test_nearest_distribution_against_a_quadratic_programme(measure):
    support, q = measure
    k = support.num_atoms
    nearest = nearest_distribution(support, q)
    assert (nearest >= 0).all()
    assert nearest.sum() == pytest.approx(1, abs=1e-12)
    C = gram_by_definition(support, 0.0)
    solved = solve_quadratic_programme(C, -C @ q, (np.ones((1, k)), np.ones(1)), nonnegative=True)
    solved = np.maximum(solved, 0) / np.maximum(solved, 0).sum()
    ours, theirs = (cramer_distance_sq(support, q, p, mass_penalty=0) for p in (nearest, solved))
    assert ours <= theirs + 1e-9
    np.testing.assert_allclose(nearest, solved, atol=2e-4)


@given(supports(max_atoms=5).flatmap(lambda s: st.tuples(st.just(s), vectors(s.num_atoms))))
def test_nearest_distribution_against_every_active_set(measure):
    """Exact to rounding: solve the equality-constrained problem for each set of zeros, keep the best feasible one."""
    support, q = measure
    k, C = support.num_atoms, gram_by_definition(support, 1.0)
    target = q + (1 - q.sum()) / k
    best = np.inf
    for free in itertools.chain.from_iterable(itertools.combinations(range(k), n) for n in range(1, k + 1)):
        index = list(free)
        kkt = np.block(
            [[C[np.ix_(index, index)], np.ones((len(index), 1))], [np.ones((1, len(index))), np.zeros((1, 1))]]
        )
        candidate = np.zeros(k)
        candidate[index] = np.linalg.solve(kkt, np.append(C[index] @ target, 1.0))[:-1]
        if candidate.min() >= -1e-12:
            best = min(best, (candidate - target) @ C @ (candidate - target))
    nearest = nearest_distribution(support, q)
    assert (nearest - target) @ C @ (nearest - target) == pytest.approx(best, rel=1e-9, abs=1e-12)


@given(supports(), st.integers(0, 10**6))
def test_nearest_distribution_leaves_distributions_alone(support, seed):
    probs = proper(np.random.default_rng(seed), support.num_atoms)
    np.testing.assert_allclose(nearest_distribution(support, probs), probs, atol=1e-14)


evenly_spaced = st.integers(2, 12).flatmap(lambda k: st.tuples(vectors(k), vectors(k)))


@given(evenly_spaced)
def test_rearranging_never_increases_a_distance(pair):
    p, q = pair
    support = Support.uniform(-3, 5, len(p))
    before = cramer_distance_sq(support, *(m + (1 - m.sum()) / len(m) for m in pair))
    after = cramer_distance_sq(support, *(rearranged_distribution(support, m) for m in (p, q)))
    assert after <= before + 1e-9 * (1 + before)


@given(st.integers(2, 12).flatmap(vectors))
def test_rearranged_is_a_distribution_with_the_same_heights_and_mean(q):
    support = Support.uniform(-3, 5, len(q))
    unit = q + (1 - q.sum()) / len(q)
    found = rearranged_distribution(support, q)
    assert (found >= 0).all()
    assert found.sum() == pytest.approx(1, abs=1e-12)
    heights = np.cumsum(unit)[:-1]
    np.testing.assert_allclose(np.cumsum(found)[:-1], np.sort(np.clip(heights, 0, 1)), atol=1e-9)
    if ((heights >= 0) & (heights <= 1)).all():  # nothing is cut
        assert mean(support, found) == pytest.approx(mean(support, unit), abs=1e-9)
    np.testing.assert_allclose(rearranged_distribution(support, found), found, atol=1e-12)


def test_quantiles_at_the_edge_of_rounding():
    tiny = np.array([0.5, -0.5, 1e-15])  # a total far below the rounding of its parts
    assert 10 <= cvar(Support([10, 11, 12]), tiny, 0.5) <= 12
    assert quantile(Support([0, 1]), np.array([5e-7, 1 - 5e-7], np.float32), 0.0) == 0
    noise = [-0.1, -0.1, 0.1 + 0.2, -0.1 - 0.2, 0.1, -0.1 - 0.2, 0.2, 0.1 + 0.2, -0.1]  # sums to +3e-17 or -8e-17
    assert np.isfinite(quantile(Support.uniform(0, 1, 9), noise, 0.5))


def test_nearest_distribution_by_hand():
    support = Support([0.0, 1.0, 2.0])
    np.testing.assert_allclose(nearest_distribution(support, [-0.5, 0.0, 1.5]), [0, 0, 1], atol=1e-15)
    np.testing.assert_allclose(nearest_distribution(support, [0.75, -0.5, 0.75]), [0.5, 0, 0.5], atol=1e-15)
    # Mass two: the missing -1 is taken evenly, then (2/3, -1/3, 2/3) has its CDF pooled to (1/2, 1/2).
    np.testing.assert_allclose(nearest_distribution(support, [1.0, 0.0, 1.0]), [0.5, 0, 0.5], atol=1e-15)


def test_nearest_distribution_on_a_support_with_tiny_and_wide_gaps(rng):
    support = Support([0.0, 1e-7, 1.0, 1.0 + 1e-6, 50.0])
    q = rng.normal(size=(20, 5))
    nearest = nearest_distribution(support, q)
    for row, probs in zip(q, nearest, strict=True):
        for vertex in np.eye(5):  # optimality: no vertex of the simplex is a direction of descent
            slope = (vertex - probs) @ gram_by_definition(support, 0.0) @ (probs - row)
            assert slope >= -1e-9


def test_levels_broadcast_with_leading_axes(rng):
    support, probs = SUPPORTS["atari"], proper(rng, 4, 51)
    several = quantile(support, probs, np.array([[0.1], [0.5], [0.9]]))
    assert several.shape == (3, 4)
    assert several[2, 1] == quantile(support, probs[1], 0.9)
    assert cvar(support, probs, [0.1, 0.2, 0.3, 0.4]).shape == (4,)
    assert cvar(support, probs[0], [0.1, 0.2]).shape == (2,)


@pytest.mark.parametrize("statistic", [quantile, cvar])
def test_no_quantiles_without_mass(statistic):
    with pytest.raises(ValueError, match=r"masses must have a positive total mass, got a total of -1\.0"):
        statistic(Support([0, 1]), [0.0, -1.0], 0.5)


@given(signed)
def test_with_unit_mass_is_the_nearest_measure_of_mass_one(measure):
    support, masses = measure
    found = with_unit_mass(support, masses)
    np.testing.assert_allclose(found.sum(axis=-1), 1.0, atol=1e-9)
    constrained = project_affine(support, masses, np.ones((1, support.num_atoms)), np.ones(1))
    np.testing.assert_allclose(found, constrained, atol=1e-7 * (1 + abs(masses).max()))


@given(signed, st.floats(-3, 3), st.floats(0, 1))
def test_clipped_mass_is_what_lies_outside(measure, reward, discount):
    support, masses = measure
    moved = [reward + discount * float(z) for z in support.atoms]
    outside = sum(abs(m) for x, m in zip(moved, masses, strict=True) if not support.v_min <= x <= support.v_max)
    expected = outside / abs(masses).sum() if abs(masses).sum() else 0.0
    assert float(clipped_mass(support, reward, discount, masses)) == pytest.approx(expected, abs=1e-9)


def test_clipped_mass_broadcasts_and_is_zero_without_mass():
    support = Support([-1.0, 0.0, 1.0])
    rewards, discounts = np.array([[0.0], [0.5]]), np.array([1.0, 0.0])
    found = clipped_mass(support, rewards, discounts, np.array([0.5, -0.25, 0.25]))
    np.testing.assert_allclose(found, [[0.0, 0.0], [0.25, 0.0]])
    assert float(clipped_mass(support, 5.0, 1.0, np.zeros(3))) == 0.0
