"""Every head through the same checks, against loops written from the definitions."""

import functools
import inspect
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import gram_by_definition
from scipy import optimize, stats

from cramerl import Support, cramer_distance_sq
from cramerl.cramer import cramer_gram
from cramerl.deep.heads import HEADS, S51, U51, make_head

S51_VARIANTS = {
    f"s51-{where}-{scale}": ("s51", {"normalisation": where, "mass_penalty_scale": scale})
    for where in ("after", "before")
    for scale in ("orthonormal", "total")
}
VARIANTS = {
    "dqn-huber": ("dqn", {"dqn_loss": "huber"}),
    "dqn-squared": ("dqn", {"dqn_loss": "squared"}),
    "c51": ("c51", {}),
    **S51_VARIANTS,
    "s51-rearranged": ("s51", {"next_distribution": "rearranged"}),
    "u51": ("u51", {}),
    "u51-nearest": ("u51", {"next_distribution": "nearest"}),
    "u51-scaled": ("u51", {"mode_exponent": 0.5, "mean_weight": 0.1}),
    "l51": ("l51", {}),
    "qr": ("qr", {}),
    "hl_gauss": ("hl_gauss", {}),
}
SKEWED = {"num_atoms": 11, "v_min": -2.0, "v_max": 30.0}
CASES = {case: make_head(name, **SKEWED, **options) for case, (name, options) in VARIANTS.items()}
CASES |= {"s51-51": make_head("s51"), "u51-51": make_head("u51"), "l51-51": make_head("l51")}
CASES |= {"u51-scaled-51": make_head("u51", mode_exponent=0.25)}

every_head = pytest.mark.parametrize("case", CASES)
every_variant = pytest.mark.parametrize("case", VARIANTS)
every_s51 = pytest.mark.parametrize("case", S51_VARIANTS)


@pytest.fixture(scope="module", autouse=True)
def compile_quickly():
    """Much is compiled here and run once."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def name_of(head):
    return next(name for name, kind in HEADS.items() if type(head) is kind)


def arrays(*values, dtype=None):
    """As JAX arrays, in the widest float there is unless told."""
    return [jnp.asarray(v, dtype=dtype or jnp.result_type(float)) for v in values]


def transitions(head, rng, *leading, dtype=None):
    """Rewards, discounts and next outputs: ends of episodes, no discount, and rewards on, between and beyond atoms."""
    low, high = (-10.0, 10.0) if head.support is None else (head.support.v_min, head.support.v_max)
    rewards = rng.uniform(low - 1, high + 1, leading) * rng.choice([0.1, 1.0], leading)
    discounts = rng.choice([0.0, 0.5, 0.99, 1.0], leading)
    return arrays(rewards, discounts, rng.normal(size=(*leading, head.num_outputs)), dtype=dtype)


def unit_spaced(k):
    return Support(np.arange(k, dtype=float))


# Twins: one example at a time, one atom at a time.


def softmax(outputs):
    return np.exp(outputs) / np.exp(outputs).sum()


def put_right(masses):
    return masses + (1 - masses.sum()) / len(masses)


def loop_backup(z, reward, discount, masses):
    """Where each atom's mass goes after r + gamma z: in proportion to the two neighbours, or to an end."""
    result = np.zeros(len(z))
    for atom, mass in zip(z, masses, strict=True):
        place = min(max(reward + discount * atom, z[0]), z[-1])
        right = next(i for i in range(1, len(z)) if place <= z[i])
        share = (z[right] - place) / (z[right] - z[right - 1])
        result[right - 1] += mass * share
        result[right] += mass * (1 - share)
    return result


def loop_histogram(z, value):
    """Normal probabilities of the bins around the atoms, of those of all bins; sigma is 3/4 of a bin."""
    width = (z[-1] - z[0]) / (len(z) - 1)
    distribution = stats.norm(value, 0.75 * width)
    bins = np.array([distribution.cdf(atom + width / 2) - distribution.cdf(atom - width / 2) for atom in z])
    return bins / bins.sum()


def loop_cosines(k, outputs, exponent=0.0):
    """U51's masses: even, plus cosines over the atoms, each divided by the root of its eigenvalue.

    With scaled modes each is multiplied by a power of the eigenvalue, of which the largest is taken as one.
    """
    masses = np.full(k, 1 / k)
    for j, output in enumerate(outputs, start=1):
        scale = (math.sin(math.pi / (2 * k)) / math.sin(math.pi * j / (2 * k))) ** (2 * exponent)
        for i in range(k):
            wave = math.sqrt(2 / k) * math.cos(math.pi * j * (i + 0.5) / k)
            masses[i] += scale * output * wave * 2 * math.sin(math.pi * j / (2 * k))
    return masses


def loop_heights(outputs):
    """L51's heights: the logistic function of each output, moved so that zero is a uniform CDF."""
    k = len(outputs) + 1
    return [1 / (1 + (k - i) / i * math.exp(-output)) for i, output in enumerate(outputs, start=1)]


def loop_rearranged(masses):
    """Masses whose CDF has the same heights, sorted and cut to [0, 1]."""
    heights = sorted(min(max(height, 0.0), 1.0) for height in itertools.accumulate(masses[:-1]))
    return np.diff([0, *heights, 1])


def quadratic_programme(masses):
    """The distribution nearest in Cramér distance on unit-spaced atoms, by a solver."""
    gram, k = gram_by_definition(unit_spaced(len(masses)), 0), len(masses)
    found = optimize.minimize(
        lambda p: (p - masses) @ gram @ (p - masses),
        np.full(k, 1 / k),
        jac=lambda p: 2 * gram @ (p - masses),
        bounds=[(0, 1)] * k,
        constraints={"type": "eq", "fun": lambda p: p.sum() - 1, "jac": np.ones_like},
        method="SLSQP",
        options={"ftol": 1e-16, "maxiter": 500},
    )
    return found.x


def twin_next(head, masses):
    """What is backed up."""
    kind = getattr(head, "next_distribution", "signed")
    return {"signed": lambda x: x, "rearranged": loop_rearranged, "nearest": quadratic_programme}[kind](masses)


def twin_distribution(head, outputs):
    """Atoms and masses of one example, of total one."""
    name, n = name_of(head), len(outputs)
    if head.support is None:
        return outputs, np.full(n, 1 / n)
    if name == "s51":
        return head.support.atoms, put_right(outputs)
    masses = loop_cosines(n + 1, outputs, head.mode_exponent) if name == "u51" else softmax(outputs)
    if name == "l51":
        masses = np.diff([0, *loop_heights(outputs), 1])
    return head.support.atoms, masses


def twin_target(head, reward, discount, outputs):
    """One example's target; for u51 its masses."""
    name, (z, masses) = name_of(head), twin_distribution(head, outputs)
    if name == "dqn":
        return reward + discount * outputs[0]
    if name == "qr":
        return np.array([reward + discount * place for place in outputs])
    if name == "hl_gauss":
        return loop_histogram(z, reward + discount * sum(z * masses))
    if name == "s51" and head.normalisation == "after" and head.next_distribution == "signed":
        return put_right(loop_backup(z, reward, discount, outputs))
    return loop_backup(z, reward, discount, twin_next(head, masses))


def huber(x):
    return x**2 / 2 if abs(x) <= 1 else abs(x) - 0.5


def twin_loss(head, outputs, target):
    name, n = name_of(head), len(outputs)
    if name == "dqn":
        error = float(target) - outputs[0]
        return huber(error) if head.dqn_loss == "huber" else error**2
    if name in ("c51", "hl_gauss"):
        return -sum(target * np.log(softmax(outputs)))
    if name == "u51":
        off = loop_cosines(n + 1, outputs, head.mode_exponent) - loop_cosines(n + 1, target, head.mode_exponent)
        return off @ gram_by_definition(unit_spaced(n + 1), 0) @ off + head.mean_weight * (off @ np.arange(n + 1)) ** 2
    if name == "l51":
        pairs = zip(loop_heights(outputs), itertools.accumulate(target[:-1]), strict=True)
        return -sum(y * math.log(x) + (1 - y) * math.log(1 - x) for x, y in pairs)
    if name == "s51":
        off, weight = outputs - target, 10 / n if head.mass_penalty_scale == "orthonormal" else 10
        return off @ gram_by_definition(unit_spaced(n), 0) @ off + weight * (outputs.sum() - 1) ** 2
    pairs = itertools.product(enumerate(outputs), target)
    return sum(abs((2 * i + 1) / (2 * n) - (y < x)) * huber(y - x) for (i, x), y in pairs) / n


# Shapes, dtypes, transformations.


def test_every_head_is_a_case():
    assert {name_of(head) for head in CASES.values()} == set(HEADS)


@every_head
@pytest.mark.parametrize("leading", [(), (3,), (2, 3)], ids=str)
def test_shapes_and_float32(case, leading, rng):
    head = CASES[case]
    rewards, discounts, outputs = transitions(head, rng, *leading, dtype=jnp.float32)

    def all_of_it(rewards, discounts, outputs):
        target = head.target(rewards, discounts, outputs)
        distribution = head.distribution(outputs)
        return *distribution, head.values(outputs), head.loss(outputs, target), jax.grad(total)(outputs, target), target

    def total(outputs, target):
        return jnp.sum(head.loss(outputs, target))

    atoms, masses, values, losses, gradient, target = jax.eval_shape(all_of_it, rewards, discounts, outputs)
    num_atoms = head.num_outputs + (name_of(head) in ("u51", "l51"))
    assert atoms.shape == masses.shape == (*leading, num_atoms)
    assert values.shape == losses.shape == leading
    assert gradient.shape == outputs.shape
    target_size = num_atoms if name_of(head) == "l51" else head.num_outputs
    assert target.shape == (leading if name_of(head) == "dqn" else (*leading, target_size))
    for array in (atoms, masses, values, losses, gradient, target):
        assert array.dtype == jnp.float32
    assert head.support is None or head.support.num_atoms == num_atoms


@every_variant
def test_jit_no_jit_and_vmap_agree(case, rng):
    head = CASES[case]
    batch = transitions(head, rng, 4, dtype=jnp.float32)

    def everything(rewards, discounts, outputs):
        target = head.target(rewards, discounts, outputs)
        return target, head.loss(outputs, target), head.values(outputs), *head.distribution(outputs)

    together, mapped = jax.jit(lambda *xs: (everything(*xs), jax.vmap(everything)(*xs)))(*batch)
    results = everything(*batch), together, mapped
    for eager, jitted, mapped in zip(*results, strict=True):
        assert eager.dtype == jitted.dtype == mapped.dtype == jnp.float32
        np.testing.assert_allclose(jitted, eager, rtol=2e-5, atol=2e-5)
        np.testing.assert_allclose(mapped, eager, rtol=2e-5, atol=2e-5)


@every_variant
def test_one_trace_whatever_the_values(case, rng):
    """Also for a head built anew, as a static argument; zeros, huge outputs and NaN take the same path."""
    name, options = VARIANTS[case]
    traces = []

    def mean_loss(outputs, head, rewards, discounts, next_outputs):
        traces.append(case)
        return jnp.mean(head.loss(outputs, head.target(rewards, discounts, next_outputs)))

    step = jax.jit(jax.value_and_grad(mean_loss), static_argnums=1)
    for scale in (0.0, 1.0, 1e6, np.nan):
        head = make_head(name, **SKEWED, **options)
        rewards, discounts, outputs = transitions(head, rng, 5, dtype=jnp.float32)
        loss, gradient = step(scale * outputs, head, rewards, discounts, outputs[::-1])
        assert bool(jnp.isfinite(loss)) == bool(jnp.isfinite(gradient).all()) == np.isfinite(scale)
    assert len(traces) == 1


# Numbers, against the twins, in float64.

ROWS = 24


@functools.cache
def compiled(case):
    """All there is to compute on a batch of ROWS: the target's side, and the losses with their gradients."""
    head = CASES[case]

    def before(rewards, discounts, outputs):
        return head.target(rewards, discounts, outputs), head.distribution(outputs), head.values(outputs)

    def total(outputs, targets):
        losses = head.loss(outputs, targets)
        return jnp.sum(losses), losses

    return jax.jit(before), jax.jit(jax.grad(total, has_aux=True))


def backed_up(case, *batch):
    """Targets, (atoms, masses), values and clipped shares, for NumPy."""
    return jax.tree.map(np.asarray, compiled(case)[0](*batch))


def gradients_and_losses(case, outputs, targets):
    return jax.tree.map(np.asarray, compiled(case)[1](*arrays(outputs, targets)))


@every_head
def test_distribution_and_values(case, rng, x64):
    head = CASES[case]
    batch = transitions(head, rng, ROWS)
    _, (atoms, masses), values = backed_up(case, *batch)
    for i, outputs in enumerate(np.asarray(batch[2])):
        z, unit = twin_distribution(head, outputs)
        np.testing.assert_allclose(atoms[i], z, rtol=1e-12)
        np.testing.assert_allclose(masses[i], outputs if "s51" in case else unit, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(values[i], sum(z * unit), rtol=1e-9, atol=1e-12)


@every_head
def test_values_are_the_mean_of_a_distribution_of_mass_one(case, rng, x64):
    rewards, discounts, outputs = transitions(CASES[case], rng, ROWS)
    if "s51" in case:
        outputs = jnp.asarray([put_right(row) for row in np.asarray(outputs)])
    _, (atoms, masses), values = backed_up(case, rewards, discounts, outputs)
    np.testing.assert_allclose(np.sum(masses, axis=-1), 1, rtol=1e-12)
    np.testing.assert_allclose(values, np.sum(atoms * masses, axis=-1), rtol=1e-10, atol=1e-12)


@every_head
def test_target_is_the_twins(case, rng, x64):
    head = CASES[case]
    batch = transitions(head, rng, ROWS)
    targets = backed_up(case, *batch)[0]
    if "u51" in case:
        targets = backed_up(case, *batch[:2], targets)[1][1]
    for i, (reward, discount, outputs) in enumerate(zip(*map(np.asarray, batch), strict=True)):
        expected = twin_target(head, reward, discount, outputs)
        np.testing.assert_allclose(targets[i], expected, rtol=1e-7, atol=1e-10)


@every_head
def test_loss_is_the_twins_and_its_gradient_their_difference(case, rng, x64):
    head, step = CASES[case], 1e-5
    targets = backed_up(case, *transitions(head, rng, ROWS))[0]
    outputs = 2 * rng.normal(size=(ROWS, head.num_outputs))
    gradients, losses = gradients_and_losses(case, outputs, targets)
    for i in range(3):
        row, target = outputs[i], targets[i]
        np.testing.assert_allclose(losses[i], twin_loss(head, row, target), rtol=1e-8)
        moves = step * np.eye(len(row))[:12]
        slopes = [(twin_loss(head, row + d, target) - twin_loss(head, row - d, target)) / (2 * step) for d in moves]
        np.testing.assert_allclose(gradients[i][:12], slopes, rtol=1e-5, atol=1e-6)


@every_head
def test_gradient_is_zero_at_the_target_and_the_loss_least(case, rng, x64):
    """Row by row further from where the loss is least; quantiles only where all are equal."""
    head, n = CASES[case], CASES[case].num_outputs
    best = target = rng.normal(size=n)
    if name_of(head) == "dqn":
        target = best[0]
    elif name_of(head) == "qr":
        best = target = np.full(n, 1.5)
    elif name_of(head) == "s51":
        best = target = put_right(best)
    elif name_of(head) in ("c51", "hl_gauss"):
        target = softmax(best)
    elif name_of(head) == "l51":
        target = np.diff([0, *loop_heights(best), 1])
    aside = np.linspace(0, 1, ROWS)[:, None] * rng.normal(size=n)
    gradients, losses = gradients_and_losses(case, best + aside, np.array([target] * ROWS))
    np.testing.assert_allclose(gradients[0], 0, atol=1e-12)
    assert (np.diff(losses) > 0).all()


# States of which the answer is known: an episode ends at once, with one reward or one of two.

LEARNING = {"num_atoms": 12, "v_min": -3.0, "v_max": 8.0}
STATES = {"on an atom": (2.0, 2.0), "between atoms": (1.3, 1.3), "coin": (0.0, 1.0)}


@functools.cache
def learned(case, **options):
    """A head, and its outputs (3, O) for STATES after Adam, from zero, on the mean loss to the two rewards."""
    name, variant = VARIANTS[case]
    head = make_head(name, **LEARNING, **variant, **options)
    rewards = jnp.asarray(list(STATES.values()), dtype=jnp.float32)
    # What comes after the end should not matter, but to s51's "after" its mass does (see below): here it is one.
    beyond = jnp.full((3, 2, head.num_outputs), 1 / head.num_outputs, dtype=jnp.float32)
    targets = jax.jit(head.target)(rewards, jnp.zeros_like(rewards), beyond)
    return head, adam(head, jnp.zeros_like(beyond[:, 0]), targets)


@functools.partial(jax.jit, static_argnums=0)
def adam(head, outputs, targets, num_steps=1000):
    def mean_loss(outputs):
        return sum(jnp.sum(head.loss(outputs, targets[:, i])) / 2 for i in range(2))

    def step(rate, carry):
        outputs, mean, square = carry
        gradient = jax.grad(mean_loss)(outputs)
        mean, square = 0.9 * mean + 0.1 * gradient, 0.99 * square + 0.01 * gradient**2
        return outputs - rate * mean / (jnp.sqrt(square) + 1e-8), mean, square

    rates = jnp.asarray(0.1 * (1 - np.linspace(0, 1, num_steps)) ** 2, dtype=jnp.float32)
    start = outputs, jnp.zeros_like(outputs), jnp.zeros_like(outputs)
    return jax.lax.scan(lambda carry, rate: (step(rate, carry), None), start, rates)[0][0]


@every_variant
def test_learns_the_mean_and_unit_mass(case):
    head, outputs = learned(case)
    np.testing.assert_allclose(head.values(outputs), [2.0, 1.3, 0.5], atol=5e-3)
    np.testing.assert_allclose(head.distribution(outputs)[1].sum(axis=-1), 1, atol=1e-4)


@every_variant
def test_learns_the_distribution_of_a_final_reward(case):
    head, outputs = learned(case)
    atoms, masses = map(np.asarray, head.distribution(outputs))
    for i, reward in enumerate((2.0, 1.3)):
        expected = twin_target(head, reward, 0.0, np.full(head.num_outputs, 1 / head.num_outputs))
        np.testing.assert_allclose(atoms[i] if head.support is None else masses[i], expected, atol=5e-3)


@pytest.mark.parametrize("case", ["c51", *S51_VARIANTS, "s51-rearranged", "u51", "u51-nearest", "u51-scaled", "l51"])
def test_learns_the_distribution_of_a_coin(case):
    head, outputs = learned(case)
    np.testing.assert_allclose(np.asarray(head.distribution(outputs)[1])[2], [0, 0, 0, 0.5, 0.5] + [0] * 7, atol=2e-3)


def test_hl_gauss_learns_no_distribution_of_a_coin():
    head, outputs = learned("hl_gauss")
    assert np.abs(np.asarray(head.distribution(outputs)[1])[2, 3:5] - 0.5).min() > 0.1


@pytest.mark.parametrize(("threshold", "quantiles"), [(0.001, np.arange(12) >= 6), (1.0, (np.arange(12) + 0.5) / 12)])
def test_qr_learns_the_quantiles_of_a_coin_or_its_expectiles(threshold, quantiles):
    """Inside the threshold the loss is squared, and the tau-expectile of a coin is tau."""
    _, outputs = learned("qr", **({} if threshold == 1 else {"quantile_threshold": threshold}))
    np.testing.assert_allclose(outputs[2], quantiles, atol=0.01)


# What is said of single heads (DESIGN.md, theory/ERRATA.md).


@pytest.mark.parametrize("case", ["c51", "hl_gauss"])
def test_gradient_of_the_cross_entropy_is_softmax_less_target(case, rng, x64):
    batch = transitions(CASES[case], rng, ROWS)
    targets, (_, probs), *_ = backed_up(case, *batch)
    gradients, _ = gradients_and_losses(case, batch[2], targets)
    np.testing.assert_allclose(gradients, probs - targets, atol=1e-12)


@pytest.mark.parametrize(("scale", "weight"), [("orthonormal", 3.0), ("total", 3.0 * 11)])
def test_s51_hessian_is_twice_the_gram_of_unit_spacing(scale, weight, rng, x64):
    head = make_head("s51", **SKEWED, mass_penalty=3.0, mass_penalty_scale=scale)
    outputs, target = arrays(*rng.normal(size=(2, 11)))
    hessian = jax.jit(jax.hessian(head.loss))(outputs, target)
    np.testing.assert_allclose(hessian, 2 * cramer_gram(unit_spaced(11), weight), atol=1e-10)


@pytest.mark.parametrize("name", ["s51", "u51"])
def test_loss_does_not_see_the_spacing(name, rng, x64):
    narrow, wide = make_head(name, num_atoms=11, v_min=0.0, v_max=1e-3), make_head(name, **SKEWED)
    outputs, target = arrays(*rng.normal(size=(2, wide.num_outputs)))
    assert jax.jit(narrow.loss)(outputs, target) == jax.jit(wide.loss)(outputs, target) > 0.1
    np.testing.assert_array_equal(narrow.distribution(outputs)[1], wide.distribution(outputs)[1])


@pytest.mark.parametrize("case", ["u51", "u51-51", "u51-scaled-51"])
def test_u51_loss_is_the_distance_of_distributions_of_unit_mass(case, rng, x64):
    batch = transitions(CASES[case], rng, ROWS)
    targets, (_, p), *_ = backed_up(case, *batch)
    _, (_, q), *_ = backed_up(case, *batch[:2], targets)
    np.testing.assert_allclose(np.sum(p, axis=-1), 1, rtol=1e-12)
    distances = cramer_distance_sq(unit_spaced(p.shape[-1]), p, q)
    np.testing.assert_allclose(gradients_and_losses(case, batch[2], targets)[1], distances, rtol=1e-9)


def test_u51_is_white(rng, x64):
    outputs, target = arrays(*rng.normal(size=(2, 10)))
    np.testing.assert_allclose(jax.jit(jax.hessian(CASES["u51"].loss))(outputs, target), 2 * np.eye(10), atol=1e-12)


def test_u51_in_scaled_modes_says_the_same_in_other_outputs(rng, x64):
    """The first output means the same, the last one less by the ratio of the eigenvalues, 1053.48 for 51 atoms."""
    plain, scaled = make_head("u51"), make_head("u51", mode_exponent=1.0)
    assert isinstance(scaled, U51)
    lone = jnp.eye(50, dtype=float)[jnp.array([0, 49])]
    own, others = (np.asarray(head.distribution(lone)[1]) - 1 / 51 for head in (scaled, plain))
    np.testing.assert_allclose(own, others / [[1], [1053.48]], rtol=1e-5)
    masses = jnp.asarray([put_right(row) for row in rng.normal(size=(ROWS, 51))])
    np.testing.assert_allclose(scaled.distribution(scaled.outputs_of(masses))[1], masses, atol=1e-10)
    hessian = jax.jit(jax.hessian(make_head("u51", mode_exponent=0.5).loss))(jnp.zeros(50), jnp.zeros(50))
    np.testing.assert_allclose(np.diag(hessian)[[0, -1]], [2, 2 / 1053.48], rtol=1e-5)


@pytest.mark.parametrize("case", ["u51", "u51-51", "u51-scaled"])
def test_u51_target_of_no_reward_and_no_discount_is_its_argument(case, rng, x64):
    """Outputs, not only their masses."""
    outputs = transitions(CASES[case], rng, ROWS)[2]
    targets = backed_up(case, jnp.zeros(ROWS), jnp.ones(ROWS), outputs)[0]
    np.testing.assert_allclose(targets, outputs, atol=1e-10)


@every_s51
def test_s51_target_has_mass_one(case, rng, x64):
    targets = backed_up(case, *transitions(CASES[case], rng, ROWS))[0]
    np.testing.assert_allclose(np.sum(targets, axis=-1), 1, atol=1e-12)


@every_s51
def test_s51_target_at_an_end(case, rng, x64):
    """Before: the reward's. After: m delta_r + (1 - m) u, with m the mass of outputs that ought not to matter."""
    outputs = rng.normal(size=(ROWS, 11))
    targets = backed_up(case, *arrays(np.full(ROWS, 7.3), np.zeros(ROWS), outputs))[0]
    point = loop_backup(CASES[case].support.atoms, 7.3, 0.0, np.eye(11)[0])
    mass = outputs.sum(axis=1, keepdims=True) if "after" in case else 1.0
    np.testing.assert_allclose(targets, np.broadcast_to(mass * point + (1 - mass) / 11, (ROWS, 11)), atol=1e-12)


def test_s51_values_of_a_centred_support_are_the_means_of_the_outputs(rng, x64):
    batch = transitions(CASES["s51-51"], rng, ROWS)
    means = np.asarray(batch[2]) @ np.linspace(-10, 10, 51)
    np.testing.assert_allclose(backed_up("s51-51", *batch)[2], means, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("case", ["l51", "l51-51"])
def test_l51_gradient_is_the_error_of_the_heights_and_its_sum_that_of_the_mean(case, rng, x64):
    head = CASES[case]
    targets = backed_up(case, *transitions(head, rng, ROWS))[0]
    outputs = 3 * rng.normal(size=(ROWS, head.num_outputs))
    gradients, _ = gradients_and_losses(case, outputs, targets)
    heights = np.array([loop_heights(row) for row in outputs])
    np.testing.assert_allclose(gradients, heights - np.cumsum(targets, axis=-1)[:, :-1], atol=1e-12)
    assert np.abs(gradients).max() <= 1
    error = targets @ head.support.atoms - np.asarray(head.values(outputs))
    np.testing.assert_allclose(gradients.sum(axis=-1) * head.support.spacings[0], error, atol=1e-9)


def test_l51_is_bounded_whatever_the_outputs(rng, x64):
    """Values stay on the support, and a target's heights in [0, 1], also where the heights of the next state fall."""
    head = CASES["l51"]
    rewards, discounts, _ = transitions(head, rng, ROWS)
    outputs = jnp.asarray(rng.normal(size=(ROWS, 10)) * 10.0 ** rng.uniform(-1, 3, (ROWS, 1)))
    targets, (_, masses), values = backed_up("l51", rewards, discounts, outputs)
    assert masses.min() < -0.5, "the heights must fall somewhere"
    assert head.support.v_min <= values.min() <= values.max() <= head.support.v_max
    heights = np.cumsum(targets, axis=-1)
    assert -1e-12 <= heights.min() <= heights.max() <= 1 + 1e-12


def test_l51_starts_at_the_uniform_distribution():
    np.testing.assert_allclose(make_head("l51").distribution(jnp.zeros(50))[1], np.full(51, 1 / 51), atol=1e-7)


@pytest.mark.parametrize("name", ["s51", "u51"])
@pytest.mark.parametrize("kind", ["rearranged", "nearest"])
def test_targets_made_from_distributions_are_distributions(name, kind, rng, x64):
    head = make_head(name, **SKEWED, next_distribution=kind)
    rewards, discounts, outputs = transitions(head, rng, ROWS)
    masses = head.distribution(head.target(rewards, discounts, outputs))[1]
    assert masses.min() > -1e-12
    np.testing.assert_allclose(masses.sum(axis=-1), 1, atol=1e-12)
    signed = make_head(name, **SKEWED).target(rewards, discounts, outputs)
    assert np.asarray(head.distribution(signed)[1]).min() < -0.1, "the signed target is no distribution"


# Building, size.


def test_unknown_head():
    with pytest.raises(ValueError, match=r"agent must be one of .*dqn.*c51.*s51.*u51.*l51.*qr.*hl_gauss.*, got 'C51'"):
        make_head("C51")


OPTIONS = {
    "dqn_loss": "squared",
    "mass_penalty": 3.0,
    "mass_penalty_scale": "total",
    "normalisation": "before",
    "quantile_threshold": 0.5,
    "sigma_spacings": 2.0,
}
USED = {
    "dqn": ["dqn_loss"],
    "s51": ["mass_penalty", "mass_penalty_scale", "normalisation"],
    "qr": ["quantile_threshold"],
    "hl_gauss": ["sigma_spacings"],
}


@pytest.mark.parametrize("name", HEADS)
def test_make_head_uses_its_options_and_leaves_the_others(name):
    head = make_head(name, **SKEWED, **OPTIONS)
    assert type(head) is HEADS[name]
    assert head.num_outputs == {"dqn": 1, "u51": 10, "l51": 10}.get(name, 11)
    assert {option for option in OPTIONS if hasattr(head, option)} == set(USED.get(name, []))
    for option in USED.get(name, []):
        assert getattr(head, option) == OPTIONS[option]
    if head.support is not None:
        np.testing.assert_array_equal(head.support.atoms, np.linspace(-2, 30, 11))


def test_sigma_is_in_spacings(x64):
    """The variance of the histogram is that of the normal distribution and of a bin."""
    wide = make_head("hl_gauss", num_atoms=41, v_min=0.0, v_max=80.0, sigma_spacings=2.0)
    probs = np.asarray(jax.jit(wide.target)(*arrays(40.0, 0.0, np.zeros(41))))
    variance = probs @ (wide.support.atoms - 40) ** 2
    assert variance == pytest.approx(4.0**2 + 2.0**2 / 12, rel=1e-6)


def test_published_defaults():
    """51 atoms on [-10, 10] (C51), a penalty of 10 after the backup (S51), Huber (DQN)."""
    assert make_head("c51").support == Support.uniform(-10, 10, 51)
    assert make_head("s51") == S51(Support.uniform(-10, 10, 51), 10.0, "orthonormal", "after")
    assert make_head("dqn") == make_head("dqn", dqn_loss="huber")
    assert make_head("qr") == make_head("qr", num_atoms=51, quantile_threshold=1.0)
    assert make_head("hl_gauss") == make_head("hl_gauss", sigma_spacings=0.75)


@pytest.mark.parametrize("name", HEADS)
def test_a_head_is_short(name):
    assert len(inspect.getsource(HEADS[name]).splitlines()) < 65


@pytest.mark.parametrize("name", ["s51", "u51"])
def test_mean_weight_is_on_the_mean_in_spacings(name, rng, x64):
    plain, weighted = make_head(name), make_head(name, mean_weight=0.5)
    outputs, target = rng.normal(size=(2, 4, plain.num_outputs))
    error = (plain.values(outputs) - plain.values(target)) / 0.4
    np.testing.assert_allclose(weighted.loss(outputs, target), plain.loss(outputs, target) + 0.5 * error**2)
