from itertools import pairwise

import jax
import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import SUPPORTS, gram_by_definition, proper, supports, vectors
from scipy import optimize, special, stats

from cramerl import (
    Support,
    categorical_cross_entropy,
    cdf,
    cdf_cross_entropy,
    cramer_loss,
    hl_gauss_targets,
    masses_of_cdf_logits,
    mean,
    quantile_huber,
    td_huber,
    td_squared,
)

pairs = supports().flatmap(
    lambda s: st.tuples(st.just(s), vectors(s.num_atoms), vectors(s.num_atoms), st.floats(0, 20))
)


@given(pairs)
def test_cramer_loss_is_its_definition(pair):
    support, p, q, penalty = pair
    shape = (p - q) @ gram_by_definition(support, 0) @ (p - q)
    excess = (q.sum() - 1) ** 2
    assert cramer_loss(support, p, q, penalty) == pytest.approx(shape + penalty / len(q) * excess, rel=1e-9, abs=1e-9)
    total = cramer_loss(support, p, q, penalty, mass_penalty_scale="total")
    assert total == pytest.approx(shape + penalty * excess, rel=1e-9, abs=1e-9)
    means = [support.atoms @ (masses + (1 - masses.sum()) / len(masses)) for masses in (p, q)]
    weighted = cramer_loss(support, p, q, penalty, mean_weight=0.3) - cramer_loss(support, p, q, penalty)
    assert weighted == pytest.approx(0.3 * (means[0] - means[1]) ** 2, rel=1e-7, abs=1e-7)


@pytest.mark.parametrize("scale", ["orthonormal", "total"])
@pytest.mark.parametrize("name", SUPPORTS)
def test_cramer_loss_gradient(name, scale, rng, x64):
    """Automatic gradient, closed form and central differences (exact for a quadratic)."""
    support = SUPPORTS[name]
    k, lam = support.num_atoms, 3.0
    p, q = proper(rng, k), rng.normal(size=k)

    def loss(prediction):
        return cramer_loss(support, jax.numpy.asarray(p), prediction, lam, scale, 0.7)

    weight = lam / k if scale == "orthonormal" else lam
    slopes = support.atoms - support.atoms.mean()
    closed = 2 * gram_by_definition(support, 0) @ (q - p) + 2 * weight * (q.sum() - 1)
    closed += 2 * 0.7 * slopes * (slopes @ (q - p))
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(jax.numpy.asarray(q)), closed, rtol=1e-9, atol=1e-9)
    ahead, behind = (cramer_loss(support, p, q + step, lam, scale, 0.7) for step in (np.eye(k), -np.eye(k)))
    np.testing.assert_allclose((ahead - behind) / 2, closed, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("scale", ["orthonormal", "total"])
def test_cramer_loss_is_least_at_the_target_moved_to_mass_one(scale, rng):
    """As printed in the paper the penalty would pull the mass to sqrt(K) = 2.65."""
    support, p = SUPPORTS["uneven"], rng.normal(size=7)
    found = optimize.minimize(lambda q: cramer_loss(support, p, q, 2.0, scale), np.zeros(7), tol=1e-12).x
    np.testing.assert_allclose(found, p + (1 - p.sum()) / 7, atol=1e-4)


def test_cross_entropy(rng, x64):
    target, logits = proper(rng, 5, 9), rng.normal(size=(5, 9)) * 5
    expected = -np.sum(target * special.log_softmax(logits, axis=-1), axis=-1)
    np.testing.assert_allclose(categorical_cross_entropy(target, logits), expected, rtol=1e-12)
    gradient = jax.jit(jax.grad(lambda x: categorical_cross_entropy(jax.numpy.asarray(target), x).sum()))
    np.testing.assert_allclose(
        gradient(jax.numpy.asarray(logits)), special.softmax(logits, axis=-1) - target, atol=1e-12
    )


def test_cross_entropy_of_extreme_logits_is_finite():
    assert categorical_cross_entropy([0.0, 1.0], [1e4, 0.0]) == pytest.approx(1e4)
    assert categorical_cross_entropy([1.0, 0.0], [1e4, 0.0]) == 0.0


def test_cdf_cross_entropy_is_its_definition(rng, x64):
    target, logits = proper(rng, 5, 9), rng.normal(size=(5, 8)) * 5
    heights, wanted = special.expit(logits), np.cumsum(target, axis=-1)[:, :-1]
    expected = -np.sum(wanted * np.log(heights) + (1 - wanted) * np.log1p(-heights), axis=-1)
    np.testing.assert_allclose(cdf_cross_entropy(target, logits), expected, rtol=1e-9)
    gradient = jax.jit(jax.grad(lambda x: cdf_cross_entropy(jax.numpy.asarray(target), x).sum()))
    np.testing.assert_allclose(gradient(jax.numpy.asarray(logits)), heights - wanted, atol=1e-12)


def test_cdf_cross_entropy_is_least_where_the_cramer_distance_is(rng):
    """Of random targets both are least at the mean of the targets."""
    targets, support = proper(rng, 40, 5), Support(np.arange(5.0))
    found = optimize.minimize(lambda x: cdf_cross_entropy(targets, x).mean(), np.zeros(4), tol=1e-12).x
    np.testing.assert_allclose(masses_of_cdf_logits(found), targets.mean(axis=0), atol=1e-5)
    by_cramer = optimize.minimize(lambda q: cramer_loss(support, targets, q, 1.0).mean(), np.zeros(5), tol=1e-12).x
    np.testing.assert_allclose(by_cramer, targets.mean(axis=0), atol=1e-5)


def test_cdf_logits_at_the_extremes():
    extreme = np.array([-1e4, 0.0, 1e4])
    np.testing.assert_array_equal(masses_of_cdf_logits(extreme), [0, 0.5, 0.5, 0])
    assert cdf_cross_entropy(masses_of_cdf_logits(extreme), extreme) == pytest.approx(np.log(2))
    assert cdf_cross_entropy([0.0, 1.0], [1e4]) == pytest.approx(1e4)


@given(vectors(6))
def test_masses_of_cdf_logits_have_those_heights(logits):
    masses = masses_of_cdf_logits(logits)
    np.testing.assert_allclose(cdf(Support(np.arange(7.0)), masses)[:-1], special.expit(logits), atol=1e-12)
    assert masses.sum() == pytest.approx(1, abs=1e-12)


@given(vectors(5), vectors(3), st.floats(0, 2))
def test_quantile_huber_is_its_definition(y, theta, kappa):
    total = 0.0
    for i, t in enumerate(theta):
        tau = (2 * i + 1) / 6
        for sample in y:
            d = sample - t
            huber = abs(d) if kappa < 1e-9 else special.huber(kappa, d) / kappa
            total += abs(tau - (d < 0)) * huber / 5
    kappa = 0.0 if kappa < 1e-9 else kappa
    assert quantile_huber(y, theta, threshold=kappa) == pytest.approx(total, rel=1e-9, abs=1e-9)


def test_quantile_huber_is_least_at_the_quantiles(rng):
    y = rng.normal(size=41)
    levels = np.array([0.1, 0.5, 0.8])
    at_quantiles = quantile_huber(y, np.quantile(y, levels, method="inverted_cdf"), levels, threshold=0)
    others = quantile_huber(y, rng.normal(size=(500, 3)), levels, threshold=0)
    assert others.shape == (500,)
    assert (others >= at_quantiles - 1e-12).all()


def test_quantile_huber_threshold_zero_is_the_limit(rng):
    y, theta = rng.normal(size=6), rng.normal(size=4)
    for zero in (np.float32(0), np.array(0), jax.numpy.float32(0)):
        assert quantile_huber(y, theta, threshold=zero) == pytest.approx(
            quantile_huber(y, theta, threshold=0), rel=1e-6
        )
    assert quantile_huber(y, theta, threshold=1e-9) == pytest.approx(quantile_huber(y, theta, threshold=0), abs=1e-8)


@pytest.mark.parametrize("name", SUPPORTS)
def test_hl_gauss_against_scipy(name, rng):
    support, sigma = SUPPORTS[name], 0.7
    values = rng.uniform(support.v_min, support.v_max, size=6)
    z = support.atoms
    edges = np.concatenate([[z[0] - (z[1] - z[0]) / 2], (z[1:] + z[:-1]) / 2, [z[-1] + (z[-1] - z[-2]) / 2]])
    probs = hl_gauss_targets(support, values, sigma)
    for row, value in zip(probs, values, strict=True):
        distribution = stats.truncnorm((edges[0] - value) / sigma, (edges[-1] - value) / sigma, value, sigma)
        np.testing.assert_allclose(row, np.diff(distribution.cdf(edges)), atol=1e-10)


def test_hl_gauss_in_high_precision():
    """The far tail too, where differences of erf would be zero."""
    support = Support.uniform(-10, 10, 51)
    probs = hl_gauss_targets(support, -9.0, 0.3)
    with mpmath.workdps(300):
        edges = [mpmath.mpf(float(z)) for z in np.append(support.atoms - 0.2, 10.2)]
        heights = [mpmath.ncdf((e + 9) / mpmath.mpf("0.3")) for e in edges]
        expected = [(b - a) / (heights[-1] - heights[0]) for a, b in pairwise(heights)]
        np.testing.assert_allclose(probs[:30], np.array(expected[:30], dtype=float), rtol=1e-8)
    assert probs[29] > 0


def test_hl_gauss_keeps_the_mean_inside_and_ends_outside():
    support = Support.uniform(-10, 10, 51)
    assert mean(support, hl_gauss_targets(support, 3.21, 0.6)) == pytest.approx(3.21, abs=1e-6)
    for dtype in (np.float64, np.float32):
        for distance in (1e4, 1e9, 1e30):
            far = hl_gauss_targets(support, np.array([-distance, distance], dtype), 0.3)
            np.testing.assert_allclose(far[:, [0, -1]], np.eye(2), atol=1e-12)


def test_hl_gauss_gradients_are_finite_far_outside():
    support = Support.uniform(-10, 10, 51)
    gradient = jax.jit(
        jax.grad(lambda v: (hl_gauss_targets(support, v, 0.01) * support.atoms.astype(np.float32)).sum())
    )
    for value in (-1e9, -1000.0, 3.0, 1000.0, 1e9):
        assert np.isfinite(gradient(jax.numpy.float32(value)))


@given(vectors(6), vectors(6), st.floats(0.1, 3))
def test_td_losses(target, prediction, kappa):
    np.testing.assert_allclose(td_squared(target, prediction), (target - prediction) ** 2, atol=1e-12)
    expected = special.huber(kappa, target - prediction)
    np.testing.assert_allclose(td_huber(target, prediction, kappa), expected, atol=1e-12)


def test_td_huber_gradient_is_the_clipped_error():
    gradient = jax.jit(jax.vmap(jax.grad(lambda v: td_huber(jax.numpy.float32(0.0), v))))
    np.testing.assert_allclose(gradient(jax.numpy.asarray([-3, -0.5, 0, 0.25, 2])), [-1, -0.5, 0, 0.25, 1], atol=1e-6)
