import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import SUPPORTS, centring, gram_by_definition, proper, supports, vectors
from scipy.linalg import sqrtm
from scipy.stats import energy_distance

from cramerl import (
    Support,
    condition_number,
    cramer_distance_sq,
    cramer_gram,
    cramer_gram_inverse,
    cramer_gram_sqrt,
    optimal_penalty_range,
    raw_distance_sq,
    raw_gram,
    unit_mass_basis,
)

PENALTIES = [0.01, 1.0, 40.0]
pairs = supports().flatmap(
    lambda s: st.tuples(st.just(s), vectors(s.num_atoms), vectors(s.num_atoms), st.floats(0, 20))
)

# Unit spacing: K -> (cond(CC'), least condition number, penalty range), computed independently in float64.
LEMMA_1 = {
    3: (16.393731622, 3.0, 0.33333333333, 1.0),
    11: (210.74789721, 48.374150079, 0.25516804946, 12.34353752),
    21: (745.71023197, 178.06427461, 0.25140398741, 44.766068653),
    51: (4296.0000281, 1053.4789912, 0.25023730896, 263.6197478),
    101: (16697.712204, 4133.6429268, 0.25006047934, 1033.6607317),
    201: (65818.221852, 16373.241899, 0.25001526881, 4093.5604747),
}


def unit(k: int) -> Support:
    return Support(np.arange(k) - (k - 1) / 2)


@given(pairs)
def test_distance_is_the_quadratic_form(pair):
    support, p, q, penalty = pair
    expected = (p - q) @ gram_by_definition(support, penalty) @ (p - q)
    assert cramer_distance_sq(support, p, q, mass_penalty=penalty) == pytest.approx(expected, rel=1e-10, abs=1e-10)


@given(supports(), st.integers(0, 10**6))
def test_distance_of_distributions_is_half_the_squared_energy_distance(support, seed):
    p, q = proper(np.random.default_rng(seed), 2, support.num_atoms)
    energy = energy_distance(support.atoms, support.atoms, p, q)
    assert cramer_distance_sq(support, p, q) == pytest.approx(energy**2 / 2, rel=1e-7, abs=1e-12)


@given(pairs)
def test_distance_is_a_metric_squared(pair):
    support, p, q, penalty = pair
    penalty += 0.1
    assert cramer_distance_sq(support, p, p, penalty) == 0
    there, back = (cramer_distance_sq(support, a, b, penalty) for a, b in ((p, q), (q, p)))
    assert there == pytest.approx(back, rel=1e-12)
    middle = p - 0.3 * q
    detour = math.sqrt(cramer_distance_sq(support, p, middle, penalty)) + math.sqrt(
        cramer_distance_sq(support, middle, q, penalty)
    )
    assert math.sqrt(there) <= detour + 1e-9


def test_distance_by_hand():
    """Spacing 4: p - q = (1, -1): C_0 gives 4 * 1^2; p - q = (1, 1): only mass, penalty / 2 * 4."""
    support = Support([0.0, 4.0])
    assert cramer_distance_sq(support, [1.0, 0.0], [0.0, 1.0], mass_penalty=7.0) == 4.0
    assert cramer_distance_sq(support, [1.0, 1.0], [0.0, 0.0], mass_penalty=7.0) == 14.0
    np.testing.assert_allclose(cramer_gram(support, 3.0), [[2.5, 0.5], [0.5, 2.5]])


def test_mass_is_only_seen_through_the_penalty():
    support = SUPPORTS["uneven"]
    p = np.linspace(-1, 2, 7)
    assert cramer_distance_sq(support, p, p + 0.5, mass_penalty=0) == pytest.approx(0, abs=1e-24)
    assert cramer_distance_sq(support, p, p + 0.5, mass_penalty=2) == pytest.approx(2 / 7 * 3.5**2)


@given(pairs)
def test_raw_forms_agree_with_the_distance_when_masses_agree(pair):
    support, p, q, penalty = pair
    q = q + (p.sum() - q.sum()) / support.num_atoms
    expected = cramer_distance_sq(support, p, q, mass_penalty=penalty)
    for form in ("cumulative", "tail"):
        assert raw_distance_sq(support, p, q, form) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@given(pairs)
def test_raw_forms_are_their_matrices(pair):
    support, p, q, _ = pair
    for form in ("cumulative", "tail"):
        expected = (p - q) @ raw_gram(support, form) @ (p - q)
        assert raw_distance_sq(support, p, q, form) == pytest.approx(expected, rel=1e-10, abs=1e-10)


def test_raw_forms_are_the_papers_on_unit_spacing(rng):
    C = np.tril(np.ones((11, 11)))
    d = rng.normal(size=11)
    assert raw_distance_sq(unit(11), d, np.zeros(11), "cumulative") == pytest.approx(np.sum((C @ d) ** 2))
    assert raw_distance_sq(unit(11), d, np.zeros(11), "tail") == pytest.approx(np.sum((C.T @ d) ** 2))
    # They differ when masses differ, except for palindromes.
    assert abs(d @ (raw_gram(unit(11), "cumulative") - raw_gram(unit(11), "tail")) @ d) > 1e-3
    d = d + d[::-1]
    assert d @ (raw_gram(unit(11), "cumulative") - raw_gram(unit(11), "tail")) @ d == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("name", SUPPORTS)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_gram_inverse_and_square_root(name, penalty):
    support = SUPPORTS[name]
    gram, k = cramer_gram(support, penalty), support.num_atoms
    np.testing.assert_allclose(gram, gram_by_definition(support, penalty), atol=1e-12 * gram.max())
    inverse = cramer_gram_inverse(support, penalty)
    np.testing.assert_allclose(inverse @ gram, np.eye(k), atol=1e-10)
    np.testing.assert_allclose(inverse, np.linalg.inv(gram), rtol=1e-9, atol=1e-9 * np.abs(inverse).max())
    root = cramer_gram_sqrt(support, penalty)
    np.testing.assert_allclose(root, root.T, atol=1e-13 * root.max())
    np.testing.assert_allclose(root @ root, gram, atol=1e-12 * gram.max())
    np.testing.assert_allclose(root, np.real(sqrtm(gram)), atol=1e-9 * root.max())
    assert np.linalg.eigvalsh(root).min() > 0


def test_square_root_without_a_penalty_is_as_precise():
    """A plain eigendecomposition leaves the root of a rounding error, 1e-7, along the constant vector."""
    for support in (SUPPORTS["atari"], SUPPORTS["uneven"]):
        root = cramer_gram_sqrt(support, 0.0)
        np.testing.assert_allclose(root @ np.ones(support.num_atoms), 0, atol=1e-13)
        np.testing.assert_allclose(root @ root, cramer_gram(support, 0.0), atol=1e-12)


@pytest.mark.parametrize("name", SUPPORTS)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_inverse_maps_centred_atoms_to_the_end_points(name, penalty):
    """C_lambda^-1 z = (-1, 0, ..., 0, 1) for centred z at any spacing; off centre, zbar / lambda is added."""
    support = SUPPORTS[name]
    expected = np.zeros(support.num_atoms)
    expected[0], expected[-1] = -1, 1
    expected += support.atoms.mean() / penalty
    np.testing.assert_allclose(cramer_gram_inverse(support, penalty) @ support.atoms, expected, atol=1e-8)
    np.testing.assert_allclose(
        np.linalg.solve(gram_by_definition(support, penalty), support.atoms), expected, atol=1e-8
    )


@pytest.mark.parametrize("k", LEMMA_1)
def test_lemma_1_numbers(k):
    cumulative, least, low, high = LEMMA_1[k]
    assert optimal_penalty_range(unit(k)) == (pytest.approx(low, rel=1e-10), pytest.approx(high, rel=1e-10))
    for penalty in (low * (1 + 1e-12), math.sqrt(low * high), high * (1 - 1e-12)):
        assert condition_number(unit(k), penalty) == pytest.approx(least, rel=1e-10)
    assert np.linalg.cond(raw_gram(unit(k))) == pytest.approx(cumulative, rel=1e-10)
    assert np.linalg.cond(cramer_gram(unit(k), 1.0)) == pytest.approx(least, rel=1e-9)
    assert condition_number(unit(k), 0.1) == pytest.approx(high / 0.1, rel=1e-10)
    assert condition_number(unit(k), 9000.0) == pytest.approx(9000 / low, rel=1e-10)


def test_lemma_1_in_high_precision():
    """Eigenvalues of the definition of C_0, at 30 digits, for a uniform and an uneven support."""
    for support in (unit(11), SUPPORTS["uneven"]):
        k = support.num_atoms
        with mpmath.workdps(30):
            z = [mpmath.mpf(float(a)) for a in support.atoms]
            centre = mpmath.eye(k) - mpmath.ones(k) / k
            gram = centre * mpmath.matrix(k, k) * centre
            for i in range(k):
                for j in range(k):
                    gram[i, j] = -abs(z[i] - z[j]) / 2
            values = sorted(mpmath.eigsy(centre * gram * centre, eigvals_only=True))
        low, high = optimal_penalty_range(support)
        assert low == pytest.approx(float(values[1]), rel=1e-12)
        assert high == pytest.approx(float(values[-1]), rel=1e-12)


def test_spacing_scales_the_range_and_leaves_the_conditioning():
    low, high = optimal_penalty_range(unit(51))
    scaled = Support.uniform(-10, 10, 51)
    assert optimal_penalty_range(scaled) == (pytest.approx(0.4 * low), pytest.approx(0.4 * high))
    assert condition_number(scaled, 1.0) == pytest.approx(high / low)
    assert condition_number(scaled, 0.0) == math.inf


@pytest.mark.parametrize("name", SUPPORTS)
def test_unit_mass_basis(name, rng):
    support = SUPPORTS[name]
    k = support.num_atoms
    basis, left_inverse = unit_mass_basis(support)
    assert (basis.shape, left_inverse.shape) == ((k, k - 1), (k - 1, k))
    np.testing.assert_allclose(basis.sum(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(basis.T @ gram_by_definition(support, 0) @ basis, np.eye(k - 1), atol=1e-12)
    np.testing.assert_allclose(left_inverse @ basis, np.eye(k - 1), atol=1e-12)
    np.testing.assert_allclose(left_inverse @ np.ones(k), 0, atol=1e-12)
    # Every mass-one vector has coordinates, and they carry the distance.
    p, q = proper(rng, 2, k)
    o, s = left_inverse @ p, left_inverse @ q
    np.testing.assert_allclose(1 / k + basis @ o, p, atol=1e-12)
    np.testing.assert_allclose(unit_mass_basis(support).masses(np.stack([o, s])), [p, q], atol=1e-12)
    np.testing.assert_allclose(unit_mass_basis(support).outputs(np.stack([p, q])), [o, s], atol=1e-12)
    assert np.sum((o - s) ** 2) == pytest.approx(cramer_distance_sq(support, p, q), abs=1e-12)


def test_unit_mass_basis_is_continuous_in_the_support():
    """The closed form and the SVD are the same basis, signs and order included."""
    atoms = np.linspace(-3, 3, 8)
    nudged = atoms + 1e-9 * np.sin(np.arange(8))
    even, uneven = unit_mass_basis(Support(atoms)), unit_mass_basis(Support(nudged))
    assert Support(atoms).is_uniform
    assert not Support(nudged).is_uniform
    np.testing.assert_allclose(even.basis, uneven.basis, atol=1e-6)


def test_set_of_extensions_has_dimension_k():
    """Symmetric M with d'Md = 0 for all zero-mass d are ae' + ea': K dimensions (Lemma 4 of the appendix)."""
    for k in (3, 6):
        rows, cols = np.triu_indices(k)
        differences = np.random.default_rng(k).normal(size=(200, k)) @ centring(k)
        conditions = differences[:, rows] * differences[:, cols] * np.where(rows == cols, 1, 2)
        assert len(rows) - np.linalg.matrix_rank(conditions) == k


def test_a_condition_beyond_float64_is_infinite():
    assert condition_number(Support([0.0, 1e-300, 1e300]), 1.0) == np.inf
