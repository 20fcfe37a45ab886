"""The claims, recomputed: every figure again by another way, and a wrong library is noticed."""

import math

import mpmath
import numpy as np
import pytest
from oracles import centred_energy, gram_by_definition, project_by_loop
from scipy.optimize import brentq

from cramerl import Support
from cramerl.claims import (
    distance,
    learning,
    logistic,
    process,
    projection,
    targets,
    theorems,
)
from cramerl.claims import setting as shared
from cramerl.claims.claim import at_most, exactly, printed
from cramerl.measures import masses_between, with_unit_mass

HOLDS, CORRECTED, FALSE = "holds", "holds with a correction", "false"
VERDICTS = {
    **{"1a": CORRECTED, "1b": HOLDS, "1c": FALSE, "1d": CORRECTED, "2": FALSE, "2b": FALSE},
    **{"3": HOLDS, "3b": FALSE, "4": HOLDS, "5": HOLDS, "6": CORRECTED, "6b": CORRECTED, "7": CORRECTED},
    **{"8a": HOLDS, "8b": FALSE, "8c": FALSE},
    **{"9a": HOLDS, "9b": FALSE, "9c": HOLDS, "9d": FALSE, "9e": FALSE, "9f": FALSE},
    **{"9g": CORRECTED, "9h": FALSE, "9i": HOLDS},
    **{"10a": CORRECTED, "10b": FALSE, "10c": FALSE, "10d": CORRECTED, "10e": CORRECTED},
    **{"11": FALSE, "12": FALSE},
    **{f"B{number}": HOLDS for number in range(1, 11)},
}
SECTIONS = (distance, projection, process, theorems, learning, targets, logistic)


@pytest.fixture(scope="module")
def figures(claims):
    return {claim.id: claim.figures for claim in claims}


def unit(k):
    return Support(np.arange(k) - (k - 1) / 2)


def move(z, reward, discount):
    """M_r column by column, each through the slow projection."""
    columns = [project_by_loop(z, np.array([reward + discount * atom]), np.ones(1)) for atom in z.atoms]
    return np.array(columns).T


def check(id):
    (statement,) = (s for section in SECTIONS for s in section.STATEMENTS if s.id == id)
    return statement.check()


def test_every_claim_is_there_in_order_with_its_verdict(claims):
    assert [(claim.id, claim.verdict) for claim in claims] == list(VERDICTS.items())


def test_what_the_paper_does_not_say_is_marked(claims):
    assert [claim.id for claim in claims if not claim.of_paper] == [f"B{number}" for number in range(1, 11)]


def test_every_figure_is_reproduced(claims):
    assert {claim.id: claim.moved() for claim in claims if not claim.passed} == {}


def test_claims_are_complete(claims):
    for claim in claims:
        assert claim.statement
        assert claim.correction
        assert claim.figures.keys() == claim.expected.keys()
        assert all(math.isfinite(figure) for figure in claim.figures.values())


def test_figures_are_the_same_every_time(figures):
    for id in ("2", "6", "9a", "9b", "B4", "B9"):
        assert check(id).figures == figures[id]


def test_lemma_1(figures):
    found, sin, cos = figures["3"], mpmath.sin, mpmath.cos
    pi = mpmath.pi
    closed = {
        "cond(CC')": (cos(pi / 103) / sin(pi / 206)) ** 2,
        "least condition number": mpmath.cot(pi / 102) ** 2,
        "smallest best λ": 1 / (4 * cos(pi / 102) ** 2),
        "largest best λ": 1 / (4 * sin(pi / 102) ** 2),
    }
    digits = ["4296.0000281", "1053.4789912", "0.2502373090", "263.6197478"]
    for (name, value), text in zip(closed.items(), digits, strict=True):
        assert found[name] == pytest.approx(float(value), rel=1e-10)
        assert f"{found[name]:.{len(text.partition('.')[2])}f}" == text
    for name, k in (("k = 3 (least definite 3)", 3), ("k = 11 (48.3742)", 11), ("k = 51 (1053.4790)", 51)):
        indefinite = float((cos(pi / k) / sin(pi / (2 * k))) ** 2)
        assert figures["3b"][f"indefinite, {name}"] == pytest.approx(indefinite, rel=1e-9)
    assert figures["3b"]["least definite, k = 7, by optimisation"] == pytest.approx(
        float(mpmath.cot(pi / 14) ** 2), rel=1e-9
    )


def test_the_printed_penalty_pulls_to_root_k(figures):
    k, lam = 51, 10.0
    gram, e, p = gram_by_definition(unit(k), 0.0), np.full(k, k**-0.5), np.eye(k)[3]
    minimiser = np.linalg.solve(gram + lam * np.outer(e, e), gram @ p + lam * e)
    found = figures["2"]["mass of the printed loss's minimiser, k = 51"]
    assert found == pytest.approx(minimiser.sum(), rel=1e-10)
    assert found == pytest.approx(math.sqrt(51), rel=1e-10)
    assert f"{found:.4f}" == "7.1414"


def constrained(z, p, row, lam=1.0):
    """argmin of the distance subject to row @ q = 0, from its optimality conditions."""
    gram, k = gram_by_definition(z, lam), z.num_atoms
    kkt = np.block([[gram, np.array(row)[:, None]], [np.array(row)[None], np.zeros((1, 1))]])
    return np.linalg.solve(kkt, np.append(gram @ p, 0.0))[:k]


def test_lemma_2(figures):
    even = np.full(3, 1 / 3)
    q = constrained(unit(3), even, [1.0, 0.0, 0.0])
    np.testing.assert_allclose(q, [0, 0.5, 0.25], atol=1e-14)
    assert figures["6"]["A = (1, 0, 0): mean"] == pytest.approx(q @ [-1, 0, 1]) == pytest.approx(0.25)
    moved = constrained(Support([0.0, 1.0, 2.0]), even, [0.0, 1.0, 0.0])
    assert figures["6"]["uncentred atoms: mean"] == pytest.approx(moved @ [0, 1, 2]) == pytest.approx(6 / 7)
    free = constrained(unit(3), np.array([0.0, 1.0, 0.0]), [0.0, 1.0, 0.0])
    assert figures["6b"]["mass without a mass row"] == pytest.approx(free.sum()) == pytest.approx(4 / 7)


def test_lemma_3_counterexample(figures):
    z, even = unit(5), np.full(5, 0.2)
    moved = move(z, 0.0, 0.5) @ even
    left = moved @ gram_by_definition(z, 0.0) @ moved
    assert figures["8b"]["left, P - Q = u"] == pytest.approx(left) == pytest.approx(0.1)
    assert figures["8b"]["right, P - Q = u"] == pytest.approx(0.0, abs=1e-12)
    assert figures["8c"]["distance after"] == pytest.approx(0.1)
    assert figures["9b"]["first step, ratio over γ"] == pytest.approx(0.1 / (0.25 / 5) / 0.5)


def after_fixed_point(transition, rewards, discount, phi, z):
    """P~ = Pi_Phi[Pi T'P~ + u] by one dense solve, for a uniform stationary distribution."""
    n, k = len(rewards), z.num_atoms
    pi_phi = phi @ np.linalg.solve(phi.T @ phi, phi.T)
    moves = [move(z, r, discount) for r in rewards]
    centre = np.eye(k) - 1 / k
    operator = np.einsum("xy,yv,ykl->xkvl", pi_phi, transition, np.array([centre @ m for m in moves]))
    constant = (pi_phi @ np.full((n, k), 1 / k)).ravel()
    masses = np.linalg.solve(np.eye(n * k) - operator.reshape(n * k, n * k), constant).reshape(n, k)
    return masses, pi_phi


def paper_bound(transition, rewards, discount, phi, z, grid, distribution, lam):
    masses, pi_phi = after_fixed_point(transition, rewards, discount, phi, z)
    best = pi_phi @ np.array([project_by_loop(z, grid, row) for row in distribution])

    def parts(rows):
        shape = np.mean([centred_energy(z, grid, p, q) for p, q in zip(distribution, rows, strict=True)])
        return shape, lam / z.num_atoms * np.mean((rows.sum(axis=1) - 1) ** 2)

    (left, mass), (nearest, best_mass) = parts(masses), parts(best)
    return left + mass, (nearest + best_mass - discount * mass) / (1 - discount)


def test_theorem_1_breaks_on_the_three_cycle(figures):
    cycle, returns = np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]], dtype=float), np.array([1.0, 0.0, -1.0])
    z, phi = unit(3), np.array([[1.0, 0.0], [-1.0, 1.0], [0.0, -1.0]])
    distribution = np.eye(3)[::-1]
    for lam in (0.1, 7.0):
        left, right = paper_bound(cycle, returns - 0.5 * cycle @ returns, 0.5, phi, z, z.atoms, distribution, lam)
        assert left - right == pytest.approx(4 / 9)
    assert figures["9f"]["3-cycle: least excess, λ = 0.1, 1, 10"] == pytest.approx(4 / 9)
    assert figures["9f"]["3-cycle: largest excess"] == pytest.approx(4 / 9)


def test_theorem_1_breaks_without_clipping(figures):
    transition, rewards, grid = np.array([[0.6, 0.4], [0.4, 0.6]]), np.array([-2.0, 2.0]), np.linspace(-4, 4, 129)
    moves, distribution = [move(Support(grid), r, 0.5) for r in rewards], np.full((2, 129), 1 / 129)
    for _ in range(60):
        distribution = np.array([m @ (row @ distribution) for m, row in zip(moves, transition, strict=True)])
    left, right = paper_bound(transition, rewards, 0.5, np.array([[1.0], [-1.0]]), unit(9), grid, distribution, 1.0)
    found = figures["9f"]
    assert found["Φ = (1, -1) on sixteenths, left"] == pytest.approx(left, rel=1e-9)
    assert found["Φ = (1, -1) on sixteenths, right"] == pytest.approx(right, rel=1e-9)
    assert (f"{left:.4f}", f"{right:.4f}") == ("0.8718", "0.1490")
    assert found["Φ = (1, -1), nothing clips: left"] == pytest.approx(0.8719, abs=5e-5)
    assert found["Φ = (1, -1), nothing clips: right"] == pytest.approx(0.1492, abs=5e-5)


def test_returns_beyond_the_support(figures):
    # By hand: masses at 1 and at -1, returns of 10 and of 0, each state half of the time.
    found = figures["9g"]
    assert found["inside: left"] == pytest.approx(0.5 * 1)
    assert found["inside: right"] == pytest.approx(0)
    assert found["over R: left"] == pytest.approx(0.5 * 9 + 0.5 * 1)
    assert found["over R: right"] == pytest.approx(0.5 * 9 / 0.1)
    assert figures["10a"]["return 10: left"] == pytest.approx(9**2)
    assert figures["10a"]["return 10: right"] == pytest.approx(2 * 9)


def test_shared_weights_and_other_state_weights(figures):
    z, lam, even = unit(5), 1e-3, np.full(5, 0.2)
    gram, m = gram_by_definition(z, 0.0), move(unit(5), 0.0, 0.5)
    drift = m @ even - even
    outputs = even + math.sqrt(lam / (5 * drift @ gram @ drift)) * drift
    slope = outputs @ gram @ m @ outputs / (outputs @ gram_by_definition(z, lam) @ outputs)
    assert figures["9h"]["shared weights: slope at λ = 0.001"] == pytest.approx(slope)
    assert slope == pytest.approx(math.sqrt(500) / 2 + 0.15)
    assert f"{slope:.1f}" == "11.3"
    # 0.95 (1 * 2 + 2 * 2) / (1 + 4): the growth of the mean under equal weights.
    assert figures["9i"]["growth a step, weights (1/2, 1/2)"] == pytest.approx(1.14, abs=1e-6)


def test_theorem_2_constants(figures):
    z, atoms, k = unit(51), unit(51).atoms, 51
    ones = np.tril(np.ones((k, k)))
    for lam in (1e-3, 5.0):
        assert atoms @ np.linalg.solve(gram_by_definition(z, lam), atoms) == pytest.approx(50)
    found = figures["10b"]
    assert found["least constant, λ = 0.01, 1, 100, k = 51"] == pytest.approx(50)
    assert found["largest constant"] == pytest.approx(50)
    raw = atoms @ np.linalg.solve(ones @ ones.T, atoms)
    assert found["z'(CC')⁻¹z"] == pytest.approx(raw) == pytest.approx(50 + 25**2)
    assert found["z'(C'C)⁻¹z"] == pytest.approx(675)
    assert found["z'(CC')⁻¹z for atoms 1 to 51"] == pytest.approx(51)
    assert found["max |C_λ - CC'| at the best λ, k = 11"] == pytest.approx(5)


def test_theorem_2_is_not_tight_along_the_half_power(figures):
    z, lam = unit(51), 10.0
    gram = gram_by_definition(z, lam)
    values, vectors = np.linalg.eigh(gram)
    half = (vectors / np.sqrt(values)) @ vectors.T @ z.atoms
    ratio = (z.atoms @ half) ** 2 / (half @ gram @ half)
    assert figures["10c"]["ratio along C_λ^(-1/2) z"] == pytest.approx(ratio)
    assert f"{ratio:.2f}" == "44.97"
    assert figures["10c"]["ratio along C_λ⁻¹z"] == pytest.approx(50)


def test_clipped_mean(figures):
    z = Support.uniform(-2, 2, 5)
    moves, distribution = [move(z, r, 0.9) for r in (1.0, -1.0)], np.full((2, 5), 0.2)
    for _ in range(400):
        distribution = np.array([m @ distribution.mean(axis=0) for m in moves])
    assert (
        figures["12"]["clipped: mean for a value of 1"]
        == pytest.approx(distribution[0] @ z.atoms)
        == pytest.approx(52 / 61)
    )


def test_sorting_needs_even_spacing(figures):
    # By hand: heights (1, 0) and (0, 0), the first of them sorted to (0, 1); spacings 1 and 2.
    before, after = 1 * 1**2 + 2 * 0**2, 1 * 0**2 + 2 * 1**2
    assert figures["B2"]["atoms (0, 1, 3): squared distance before"] == pytest.approx(before)
    assert figures["B2"]["atoms (0, 1, 3): squared distance after"] == pytest.approx(after)


def sorted_by_hand(masses):
    heights = sorted(min(max(height, 0.0), 1.0) for height in np.cumsum(masses + (1 - masses.sum()) / len(masses))[:-1])
    return np.diff([0.0, *heights, 1.0])


def test_fixed_point_of_rearranged_targets():
    """One process and another start, every backup by the slow projection, and the true distribution by the library."""
    rng = np.random.default_rng(5)
    setting = shared.random_setting(rng, num_states=3, num_atoms=5, discount=0.6, reach=0.9)
    process, features, z = setting
    found = targets._rearranged_fixed_points([setting], rng.normal(size=(1, 1, 3, 5)))[0, 0]
    b, weighted = process.branches, features.T * process.stationary_distribution()
    moves, onto = [move(z, r, 0.6) for r in b.rewards], features @ np.linalg.solve(weighted @ features, weighted)
    masses = rng.normal(size=(3, 5))
    for _ in range(80):
        proper = b.next_distribution.toarray() @ np.array([sorted_by_hand(row) for row in masses])
        backed_up = np.zeros((3, 5))
        for state, matrix, row in zip(b.states, moves, proper, strict=True):
            backed_up[state] += matrix @ row
        masses = onto @ backed_up
    np.testing.assert_allclose(found, masses, atol=1e-8)
    fine = Support.uniform(-2, 2, 13)
    truth = process.true_returns(fine)
    np.testing.assert_allclose(setting._replace(support=fine).projected_returns(), truth, atol=1e-10)
    best = onto @ np.array([project_by_loop(z, fine.atoms, row) for row in truth])
    xi = process.stationary_distribution()
    left, right = (
        xi @ [centred_energy(z, fine.atoms, p, q) for p, q in zip(truth, rows, strict=True)] for rows in (found, best)
    )
    assert targets._over_bound(setting, found) == pytest.approx(left * (1 - 0.6) / right)
    assert left < right / (1 - 0.6)


def test_logistic_heights_leave_what_is_right(figures):
    """The mean of each state as plain logistic regression to γ times the other's, solved for its one weight."""

    def means(weight):
        return 1 / (1 + math.exp(5 * weight)), 1 / (1 + math.exp(weight))

    def pull(weight):
        first, second = means(weight)
        return 5 * (0.5 * second - first) + 1 * (0.5 * first - second)

    assert pull(20.0) > 0  # the means grow, though they are already more than zero
    first, second = means(brentq(pull, 0.0, 3.0))
    found = figures["B10"]
    assert found["mean of the first state"] == pytest.approx(first)
    assert found["mean of the second state"] == pytest.approx(second)
    assert found["left"] == pytest.approx((first**2 + second**2) / 2)


def test_derivative_of_the_backup_in_logits():
    """The norm of claim B9, from differences of the backup of heights near the true ones."""
    setting = shared.random_setting(np.random.default_rng(3), num_atoms=4, discount=0.7, reach=3.0)
    heights = logistic._heights(setting.projected_returns())
    tensor = logistic._height_tensor(setting)
    rng = np.random.default_rng(4)
    direction = rng.normal(size=heights.shape)
    up, down = (setting.bellman(masses_between(np, heights + size * direction)) for size in (1.0, -1.0))
    moved = (logistic._heights(up) - logistic._heights(down)) / 2
    np.testing.assert_allclose(np.einsum("xkyl,yl->xk", tensor, direction), moved, atol=1e-12)
    slopes, xi = heights * (1 - heights), setting.weights[:, None]
    norm = logistic._derivative_norm(setting, heights, tensor)
    for v in rng.normal(size=(200, *heights.shape)):
        form = np.sum(xi * v * np.einsum("xkyl,yl->xk", tensor, slopes * v))
        assert form <= norm * np.sum(xi * slopes * v**2) + 1e-12


def scaled(factor):
    return lambda function: lambda *args, **kwargs: factor * function(*args, **kwargs)


def forced(**options):
    return lambda function: lambda *args, **kwargs: function(*args, **(kwargs | options))


@pytest.mark.parametrize(
    ("module", "name", "wrong", "id"),
    [
        (distance, "cramer_gram", scaled(1.001), "3"),
        (distance, "raw_gram", scaled(1.001), "1a"),
        (distance, "cramer_loss", lambda f: lambda *a: f(*a) + 1e-3, "2"),
        (distance, "evaluate", forced(normalisation="before"), "2"),
        (projection, "cramer_gram_inverse", scaled(1.001), "5"),
        (projection, "project_affine", scaled(0.999), "6"),
        (projection, "project", scaled(0.999), "6b"),
        (projection, "cramer_distance_sq", scaled(1.001), "7"),
        (shared, "projected_bellman_update", scaled(1.001), "8a"),
        (shared, "projected_bellman_update", scaled(1.001), "8b"),
        (shared, "cramer_gram", scaled(1.001), "9h"),
        (process, "projected_bellman_iterates", forced(normalisation="before"), "9a"),
        (process, "evaluate", forced(normalisation="before"), "9c"),
        (theorems, "evaluate", forced(normalisation="before"), "9f"),
        (theorems, "cramer_gram", scaled(1.001), "10b"),
        (theorems, "cramer_gram_sqrt", scaled(1.001), "10e"),
        (learning, "evaluate", forced(normalisation="after"), "12"),
        (targets, "rearranged_distribution", scaled(1.001), "B2"),
        (targets, "nearest_distribution", scaled(1.001), "B3"),
        (targets, "nearest_distribution", lambda f: lambda support, masses: 2 * masses, "B4"),
        (targets, "rearranged_distribution", lambda f: lambda support, masses: 2 * f(support, masses), "B5"),
        (targets, "rearranged_distribution", lambda f: with_unit_mass, "B6"),
        (logistic, "cdf_cross_entropy", scaled(1.001), "B7"),
        (logistic, "masses_of_cdf_logits", scaled(1.001), "B8"),
        (shared, "backup_matrix", lambda f: lambda support, r, g: f(support, r, g**0.1), "B9"),
        (shared, "backup_matrix", lambda f: lambda support, r, g: f(support, r, 0.9 * g), "B10"),
    ],
)
def test_a_wrong_library_is_noticed(monkeypatch, module, name, wrong, id):
    monkeypatch.setattr(module, name, wrong(getattr(module, name)))
    claim = check(id)
    assert not claim.passed
    assert claim.moved()


def test_what_a_figure_has_to_be():
    assert printed("44.97").admits(44.974)
    assert not printed("44.97").admits(44.976)
    assert exactly(4 / 9).admits(4 / 9 + 1e-12)
    assert not exactly(4 / 9).admits(0.4444)
    assert not at_most(1.0).admits(math.nan)
