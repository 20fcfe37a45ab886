import warnings

import jax
import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import (
    SUPPORTS,
    centred_energy,
    gram_by_definition,
    project_by_loop,
    proper,
    solve_quadratic_programme,
    supports,
    vectors,
)

from cramerl import (
    Support,
    backup,
    backup_matrix,
    cramer_gram,
    cramer_loss,
    mean,
    project,
    project_affine,
    unit_mass_basis,
)

# A support, source atoms (inside, outside, on atoms, repeated, unsorted) and signed masses of any total.
measures = supports().flatmap(
    lambda support: st.integers(1, 8).flatmap(
        lambda j: st.tuples(
            st.just(support),
            st.lists(
                st.one_of(st.floats(-15, 15), st.sampled_from(support.atoms.tolist())), min_size=j, max_size=j
            ).map(np.array),
            vectors(j),
        )
    )
)


@given(measures)
def test_project_equals_slow_twin(measure):
    np.testing.assert_allclose(project(*measure), project_by_loop(*measure), atol=1e-12)


@given(measures)
def test_project_minimises_the_cramer_distance(measure):
    """The energy is quadratic in q, so three evaluations of it give its derivative exactly: zero at the projection
    along every direction that keeps the mass."""
    support, atoms, masses = measure
    q = project(support, atoms, masses)
    for i in range(support.num_atoms - 1):
        step = np.zeros(support.num_atoms)
        step[i], step[i + 1] = 1.0, -1.0
        slope = centred_energy(support, atoms, masses, q + step) - centred_energy(support, atoms, masses, q - step)
        assert abs(slope) < 1e-10


@given(measures)
def test_project_keeps_mass_and_order_is_irrelevant(measure):
    support, atoms, masses = measure
    projected = project(support, atoms, masses)
    assert projected.sum() == pytest.approx(masses.sum(), abs=1e-12)
    np.testing.assert_allclose(project(support, atoms[::-1], masses[::-1]), projected, atol=1e-12)


@given(measures)
def test_project_keeps_the_mean_when_nothing_clips(measure):
    support, atoms, masses = measure
    inside = np.clip(atoms, support.v_min, support.v_max)
    assert mean(support, project(support, inside, masses)) == pytest.approx(inside @ masses, abs=1e-11)


@given(measures)
def test_project_is_idempotent_and_linear(measure):
    support, atoms, masses = measure
    once = project(support, atoms, masses)
    np.testing.assert_array_equal(project(support, support.atoms, once), once)
    np.testing.assert_allclose(
        project(support, atoms, 2 * masses - 3 * masses**2),
        2 * once - 3 * project(support, atoms, masses**2),
        atol=1e-10,
    )


@given(measures, st.integers(0, 10**6))
def test_pythagoras(measure, seed):
    """l2(p, q) = l2(p, Proj p) + l2(Proj p, q) for signed targets, unequal masses and mass beyond the ends."""
    support, atoms, masses = measure
    q = np.random.default_rng(seed).normal(size=support.num_atoms)
    nearest = project(support, atoms, masses)
    direct = centred_energy(support, atoms, masses, q)
    detour = centred_energy(support, atoms, masses, nearest) + centred_energy(support, support.atoms, nearest, q)
    assert direct == pytest.approx(detour, rel=1e-9, abs=1e-9)


@given(measures, st.integers(0, 10**6))
def test_two_step_optimisation_has_the_gradient_of_one_step(measure, seed):
    """d/dq l2(p, q) = d/dq l2(Proj p, q): central differences (exact for a quadratic) against 2 C_0 (q - Proj p)."""
    support, atoms, masses = measure
    q = np.random.default_rng(seed).normal(size=support.num_atoms)
    expected = 2 * cramer_gram(support, 0) @ (q - project(support, atoms, masses))
    for i, step in enumerate(np.eye(support.num_atoms)):
        ahead, behind = (centred_energy(support, atoms, masses, q + s * step) for s in (1, -1))
        assert (ahead - behind) / 2 == pytest.approx(expected[i], rel=1e-8, abs=1e-8)


def test_project_against_rlax(rng):
    """rlax is an independent implementation, in float32 and for proper distributions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its import of TensorFlow Probability warns
        import rlax
    atoms = np.sort(rng.uniform(-12, 12, size=(20, 30))).astype(np.float32)
    probs = proper(rng, 20, 30).astype(np.float32)
    for support in SUPPORTS.values():
        z = support.atoms.astype(np.float32)  # both sides get the rounded atoms
        with jax.numpy_rank_promotion("allow"):
            theirs = jax.jit(jax.vmap(rlax.categorical_l2_project, in_axes=(0, 0, None)))(atoms, probs, z)
        np.testing.assert_allclose(project(Support(z), atoms, probs), theirs, atol=2e-5)


def test_project_in_high_precision():
    support = Support([-1.0, -0.3, 0.7, 2.0])
    atoms, masses = np.array([-0.9, 0.1, 1.9, 5.0]), np.array([0.3, -1.7, 2.2, 0.1])
    with mpmath.workdps(40):
        z, out = [mpmath.mpf(float(a)) for a in support.atoms], [mpmath.mpf(0)] * 4
        for x, m in zip(map(mpmath.mpf, atoms.tolist()), map(mpmath.mpf, masses.tolist()), strict=True):
            x = min(x, z[-1])
            i = next(i for i in (2, 1, 0) if z[i] <= x)
            share = (x - z[i]) / (z[i + 1] - z[i])
            out[i] += m * (1 - share)
            out[i + 1] += m * share
        np.testing.assert_allclose(project(support, atoms, masses), np.array(out, dtype=float), rtol=1e-15)


def test_project_by_hand():
    support = Support([0.0, 1.0, 3.0])
    np.testing.assert_array_equal(project(support, [2.0], [1.0]), [0.0, 0.5, 0.5])
    np.testing.assert_array_equal(project(support, [-7.0, 9.0], [1.0, -2.0]), [1.0, 0.0, -2.0])
    np.testing.assert_array_equal(project(support, [0.25, 0.25], [1.0, 1.0]), [1.5, 0.5, 0.0])


@pytest.mark.parametrize("name", SUPPORTS)
@pytest.mark.parametrize("discount", [0.0, 0.5, 0.99, 1.0])
def test_backup_function_and_matrix_agree(name, discount, rng):
    support = SUPPORTS[name]
    rewards, masses = rng.normal(size=(4, 3)) * 3, rng.normal(size=(4, 3, support.num_atoms))
    matrices = backup_matrix(support, rewards, discount)
    assert matrices.shape == (4, 3, support.num_atoms, support.num_atoms)
    np.testing.assert_allclose(matrices.sum(axis=-2), 1.0, rtol=1e-14)
    assert (matrices >= 0).all()
    assert ((matrices != 0).sum(axis=-2) <= 2).all()
    direct = backup(support, rewards, discount, masses)
    np.testing.assert_allclose((matrices @ masses[..., None])[..., 0], direct, atol=1e-12)
    looped = project_by_loop(support, rewards[1, 2] + discount * support.atoms, masses[1, 2])
    np.testing.assert_allclose(direct[1, 2], looped, atol=1e-12)


def test_backup_of_an_ended_episode_is_the_reward():
    support = Support.uniform(-1, 1, 5)
    ended = backup(support, [0.25, -3.0], [0.0, 0.0], np.full((2, 5), 0.2))
    np.testing.assert_allclose(ended, [[0, 0, 0.5, 0.5, 0], [1, 0, 0, 0, 0]], atol=1e-15)


def test_backup_mean_is_the_bellman_equation(rng):
    support = Support.uniform(-10, 10, 51)
    masses = rng.normal(size=(6, 51)) / 51
    rewards, discount = rng.uniform(-0.1, 0.1, 6), 0.99
    expected = rewards * masses.sum(-1) + discount * mean(support, masses)
    np.testing.assert_allclose(mean(support, backup(support, rewards, discount, masses)), expected, atol=1e-13)


def test_backup_contracts_by_the_root_of_the_discount(rng):
    support = SUPPORTS["uneven"]
    gram = gram_by_definition(support, 0)
    for discount in (0.3, 0.9):
        for reward in (-2.0, 0.1, 6.0):
            D = rng.normal(size=(50, support.num_atoms))
            D -= D.mean(axis=-1, keepdims=True)  # equal masses: the only case where the paper's Lemma 3 holds
            MD = D @ backup_matrix(support, reward, discount).T
            before, after = (np.einsum("bi,ij,bj->b", d, gram, d) for d in (D, MD))
            assert (after <= discount * before * (1 + 1e-12)).all()


def test_with_a_weight_on_the_mean_backups_contract_while_nothing_is_clipped(rng):
    """docs/mathematics.md, weighing the mean: both statements."""
    support = Support(np.arange(-25.0, 26.0))
    slopes = support.atoms @ unit_mass_basis(support).basis
    assert slopes @ slopes == pytest.approx(50)

    def size(masses, weight):
        return cramer_loss(support, masses, np.zeros(51), 0.0, mean_weight=weight)

    D = rng.normal(size=(200, 51)) * rng.integers(0, 2, size=(200, 51))
    D -= D.mean(axis=-1, keepdims=True)
    for discount in (0.5, 0.9, 0.99):
        backed_up = backup(support, rng.uniform(-25, 25, 200) * (1 - discount), discount, D)
        for weight in (0.0, 0.1, 1.0, 10.0):
            assert (size(backed_up, weight) <= discount * size(D, weight) * (1 + 1e-9)).all()
    heights = np.repeat([0.0, 1.0, -1.0, 0.0], [30, 10, 10, 1])  # of the CDF: no mean, until the right half is cut off
    no_mean = np.diff(heights, prepend=0.0)
    grown = size(backup(support, 10.0, 0.99, no_mean), 1.0) / size(no_mean, 1.0)
    assert grown == pytest.approx(5.22775)


def affine_cases(rng):
    for support in SUPPORTS.values():
        k = support.num_atoms
        for rows in {1, min(3, k - 1)}:
            yield support, rng.normal(size=k), rng.normal(size=(rows, k)), rng.normal(size=rows)


def test_project_affine_against_the_kkt_system_and_a_solver(rng):
    for support, p, A, b in affine_cases(rng):
        for penalty in (0.1, 1.0, 30.0):
            q = project_affine(support, p, A, b, mass_penalty=penalty)
            np.testing.assert_allclose(A @ q, b, atol=1e-9)
            C, m = gram_by_definition(support, penalty), len(b)
            kkt = np.block([[C, A.T], [A, np.zeros((m, m))]])
            np.testing.assert_allclose(q, np.linalg.solve(kkt, np.append(C @ p, b))[: len(p)], atol=1e-8)
            solved = solve_quadratic_programme(C, -C @ p, (A, b), nonnegative=False)
            np.testing.assert_allclose(q, solved, atol=1e-5)


def test_lemma_2_keeps_the_mean_on_a_centred_support(rng):
    for support in (Support.uniform(-3, 3, 7), Support([-3.0, -1.0, -0.5, 1.5, 3.0])):
        k = support.num_atoms
        assert support.atoms.mean() == pytest.approx(0, abs=1e-15)
        A, p = rng.normal(size=(2, k)), rng.normal(size=k)
        A[:, -1] = A[:, 0]
        q = project_affine(support, p, A, rng.normal(size=2), mass_penalty=0.7)
        assert mean(support, q) == pytest.approx(mean(support, p), abs=1e-10)
        A[:, -1] += 1.0
        q = project_affine(support, p, A, rng.normal(size=2), mass_penalty=0.7)
        assert abs(mean(support, q) - mean(support, p)) > 1e-3


def test_lemma_2_needs_a_mass_row_off_centre(rng):
    support = Support.uniform(1, 4, 7)
    p = rng.normal(size=7)
    A = rng.normal(size=(1, 7))
    A[:, -1] = A[:, 0]
    drifted = project_affine(support, p, A, [0.3])
    assert abs(mean(support, drifted) - mean(support, p)) > 1e-3
    kept = project_affine(support, p, np.vstack([A, np.ones(7)]), [0.3, p.sum()])
    assert mean(support, kept) == pytest.approx(mean(support, p), abs=1e-11)


def test_lemma_2_counterexample():
    q = project_affine(Support([-1, 0, 1]), np.full(3, 1 / 3), [[1, 0, 0]], [0.0], mass_penalty=1.0)
    np.testing.assert_allclose(q, [0, 0.5, 0.25], atol=1e-14)
    assert mean(Support([-1, 0, 1]), q) == pytest.approx(0.25)


def test_hat_projection_is_an_affine_projection_with_the_mass_row(rng):
    """Projection onto a coarser support: constrain the masses off it to zero and keep the total mass (ERRATA 6b)."""
    fine, kept = Support.uniform(-2, 2, 9), [0, 3, 4, 8]
    p = rng.normal(size=9)
    off = np.eye(9)[[i for i in range(9) if i not in kept]]
    q = project_affine(fine, p, np.vstack([off, np.ones(9)]), np.append(np.zeros(5), p.sum()))
    np.testing.assert_allclose(q[kept], project(Support(fine.atoms[kept]), fine.atoms, p), atol=1e-12)
    without = project_affine(fine, p, off, np.zeros(5))
    assert abs(without.sum() - p.sum()) > 1e-3


def test_project_affine_far_from_zero_and_with_rows_of_unlike_size():
    far = Support.uniform(1e4, 1e4 + 20, 21)
    q = project_affine(far, np.full(21, 1 / 21), np.stack([np.ones(21), far.atoms]), [1.0, 10007.0])
    assert q.sum() == pytest.approx(1, abs=1e-9)
    assert q @ (far.atoms - 1e4) == pytest.approx(7, abs=1e-6)
    small = project_affine(
        Support.uniform(-1, 1, 5), [0.1, 0.2, 0.3, 0.2, 0.2], [[1] * 5, [1e-8, 0, 0, 0, 0]], [1, 0.5e-8]
    )
    assert small[0] == pytest.approx(0.5)


def test_project_affine_with_dependent_rows(rng):
    support, p = Support.uniform(-1, 1, 5), rng.normal(size=5)
    once = project_affine(support, p, [[1, 1, 1, 1, 1]], [1.0])
    np.testing.assert_allclose(project_affine(support, p, np.ones((2, 5)), [1.0, 1.0]), once, atol=1e-12)
    assert project_affine(support, np.zeros((0, 5)), np.ones((1, 5)), [1.0]).shape == (0, 5)
    with pytest.raises(ValueError, match="contradict each other"):
        project_affine(support, p, np.ones((2, 5)), [1.0, 2.0])
