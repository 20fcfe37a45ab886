"""The fixed point against independent solutions: a dense Kronecker solve, a long dense iteration, and LSTD."""

import warnings
import xml.etree.ElementTree as ET

import mpmath
import numpy as np
import pytest
from oracles_linear import dense_outcomes, random_process
from scipy import sparse

import cramerl
from cramerl import Support, backup_matrix
from cramerl.linear import (
    MarkovRewardProcess,
    aggregation,
    evaluate,
    examples,
    fourier,
    polynomial,
    projected_bellman_iterates,
    random_features,
    rbf,
    suggest_support,
    tabular,
    with_bias,
)

NORMALISATIONS = ["before", "after", "affine"]
METHODS = ["direct", "krylov", "iteration"]


def joint_process(seed: int) -> MarkovRewardProcess:
    """Rewards that depend on the next state, a few of them shared."""
    rng = np.random.default_rng(seed)
    P, labels = rng.dirichlet(np.ones(5), 5), rng.integers(0, 3, (5, 5))
    return MarkovRewardProcess.from_outcomes([(r, P * (labels == i)) for i, r in enumerate((-0.7, 0.1, 0.6))], 0.8)


def random_rewards(seed: int) -> MarkovRewardProcess:
    rng = np.random.default_rng(seed)
    distributions = [[(float(v), 0.5), (float(w), 0.5)] for v, w in rng.normal(size=(5, 2))]
    return MarkovRewardProcess(sparse.csr_array(rng.dirichlet(np.ones(5), 5)), distributions, 0.7)


UNIFORM, UNEVEN = Support.uniform(-8, 8, 9), Support([-4.0, -3.5, -1.0, 0.2, 1.0, 6.0])
# name -> (process, features, support); between them: dense and sparse, clipped and not, uneven supports, joint and
# random rewards, periodic chains, an even number of atoms, two atoms, discount zero, episodes that end.
CASES = {
    "plain": (random_process(0), random_features(6, 3, 0), UNIFORM),
    "biased": (random_process(1), with_bias(random_features(6, 2, 1)), UNIFORM),
    "clipped": (random_process(2, scale=3.0), random_features(6, 3, 2), Support.uniform(-2, 2, 7)),
    "uneven": (random_process(3), with_bias(random_features(6, 2, 3)), UNEVEN),
    "uneven, no bias": (random_process(4), random_features(6, 2, 4), UNEVEN),
    "joint": (joint_process(5), random_features(5, 2, 5), UNIFORM),
    "random rewards": (random_rewards(6), random_features(5, 3, 6), UNEVEN),
    "periodic": (examples.ring(6, 0.9), random_features(6, 2, 7), Support.uniform(-1, 3, 8)),
    "even atoms": (random_process(8), random_features(6, 2, 8), Support.uniform(-3, 5, 10)),
    "two atoms": (random_process(9), with_bias(random_features(6, 2, 9)), Support([-2.0, 3.0])),
    "myopic": (random_process(10, discount=0.0), random_features(6, 2, 10), UNIFORM),
    "tabular": (random_process(11), tabular(6), UNIFORM),
    "episodes": (
        MarkovRewardProcess.from_gymnasium("FrozenLake-v1", "uniform", 0.95),
        random_features(16, 4, 12),
        Support.uniform(-0.2, 1, 7),
    ),
}


def dense_reference(process, features, support, normalisation):
    """The fixed point in state space, P = Proj[sum P_r X(P) M_r'], as one (SK, SK) system of Kronecker products."""
    S, k = process.num_states, support.num_atoms
    xi = process.stationary_distribution()
    Pi = features @ np.linalg.solve(features.T @ (xi[:, None] * features), features.T * xi)
    J, centre, u = np.eye(k) - np.ones((k, k)) / k, np.eye(k) - np.ones((k, k)) / k, np.full(k, 1 / k)
    A, c = np.zeros((S * k, S * k)), np.zeros((S, k))
    ends = {
        (r, g)
        for r, g, e in zip(process.branches.rewards, process.branches.discounts, process.branches.ends, strict=True)
        if e
    }
    for r, g, P_r in dense_outcomes(process):
        M, one = backup_matrix(support, r, g), P_r @ np.ones(S)
        distribution = np.outer(one, M @ u)
        if (r, g) in ends:
            c += distribution - (np.outer(one, u) if normalisation == "after" else 0)
        elif normalisation == "after":
            A += np.kron(Pi @ P_r, centre @ M)
        else:
            A += np.kron(Pi @ P_r, M @ J)
            c += distribution
    if normalisation == "after":
        target = Pi @ (c + u)
    elif normalisation == "before":
        target = Pi @ c
    else:
        # P = u + Q, Q of mass zero: Q = Proj[T'(u + Q) - u].
        target = Pi @ (c - u)
    solution = np.linalg.solve(np.eye(S * k) - A, target.ravel()).reshape(S, k)
    return solution + (u if normalisation == "affine" else 0)


@pytest.mark.parametrize("normalisation", NORMALISATIONS)
@pytest.mark.parametrize("case", CASES)
def test_fixed_point_against_a_dense_kronecker_solve(case, normalisation):
    process, features, support = CASES[case]
    expected = dense_reference(process, features, support, normalisation)
    for method in METHODS:
        found = evaluate(process, features, support, normalisation=normalisation, method=method)
        assert found.method == method
        np.testing.assert_allclose(found.masses, expected, atol=1e-9)
        np.testing.assert_allclose(found.values, found.masses @ support.atoms, atol=1e-12)
        np.testing.assert_allclose(found.total_mass, found.masses.sum(axis=1), atol=1e-12)
        assert found.weights.shape == (features.shape[1], support.num_atoms)


@pytest.mark.parametrize("normalisation", NORMALISATIONS)
@pytest.mark.parametrize("case", CASES)
def test_methods_agree(case, normalisation):
    process, features, support = CASES[case]
    direct, krylov, iterated = (
        evaluate(process, features, support, normalisation=normalisation, method=m).masses for m in METHODS
    )
    np.testing.assert_allclose(krylov, direct, atol=1e-10)
    np.testing.assert_allclose(iterated, direct, atol=1e-10)


def test_a_constant_in_the_span_makes_all_normalisations_one():
    process, features, support = CASES["biased"]
    distributions = [evaluate(process, features, support, normalisation=n).masses for n in NORMALISATIONS]
    np.testing.assert_allclose(distributions[1], distributions[0], atol=1e-12)
    np.testing.assert_allclose(distributions[2], distributions[0], atol=1e-12)
    np.testing.assert_allclose(distributions[0].sum(axis=1), 1, atol=1e-12)


def test_before_and_affine_have_the_same_shape_part():
    process, features, support = CASES["plain"]
    before, affine = (evaluate(process, features, support, normalisation=n).masses for n in ("before", "affine"))
    centred = [m - m.mean(axis=1, keepdims=True) for m in (before, affine)]
    np.testing.assert_allclose(centred[0], centred[1], atol=1e-13)
    np.testing.assert_allclose(affine.sum(axis=1), 1, atol=1e-13)
    assert np.abs(before.sum(axis=1) - 1).max() > 0.01


def lstd(process, features):
    xi = process.stationary_distribution()
    weighted = features * xi[:, None]
    A = weighted.T @ (features - process.continuation() @ features)
    return features @ np.linalg.solve(A, weighted.T @ process.expected_rewards)


@pytest.mark.parametrize("case", ["plain", "biased", "joint", "tabular", "myopic"])
def test_means_are_lstds_where_theory_says_so(case):
    """Nothing clips, and the atoms are centred (*before*) or the constant is in the span."""
    process, features, support = CASES[case]
    found = evaluate(process, features, support)
    np.testing.assert_allclose(found.values, lstd(process, features), atol=1e-10)


def test_means_differ_from_lstd_when_returns_clip():
    process, features, support = CASES["clipped"]
    assert np.abs(evaluate(process, features, support).values - lstd(process, features)).max() > 0.1


def test_tabular_features_give_the_tabular_answer():
    process, features, support = CASES["tabular"]
    np.testing.assert_allclose(evaluate(process, features, support).masses, process.true_returns(support), atol=1e-11)


def test_fixed_point_in_high_precision():
    """The bound counterexample at 40 digits: *after*, two states, one feature."""
    process, features, support = examples.bound_counterexample()
    with mpmath.workdps(40):
        k, half = 9, mpmath.mpf(1) / 2
        P = mpmath.matrix([["0.6", "0.4"], ["0.4", "0.6"]])
        M = [mpmath.matrix(backup_matrix(support, r, 0.5).tolist()) for r in (-2.0, 2.0)]
        u = mpmath.matrix([mpmath.mpf(1) / k] * k)
        centre = mpmath.eye(k) - mpmath.ones(k) / k
        theta = mpmath.zeros(k, 1)
        for _ in range(200):
            # Q(x) = phi(x) theta; y(x) = centre M_r(x) sum P(x, x') Q(x') + u; theta = mean of phi(x) y(x).
            y = [centre * M[x] * (P[x, 0] - P[x, 1]) * theta + u for x in range(2)]
            theta = half * (y[0] - y[1])
        expected = np.array([float(v) for v in theta])
    found = evaluate(process, features, support, normalisation="after")
    np.testing.assert_allclose(found.weights[0], expected, atol=1e-15)


def test_many_distinct_rewards_compress_exactly():
    """More rewards than kinks: the compressed system, the state-space system and the dense reference agree."""
    rng = np.random.default_rng(0)
    process = MarkovRewardProcess(rng.dirichlet(np.ones(60), 60), rng.normal(size=60), 0.8)
    support, features = Support.uniform(-2, 2, 5), random_features(60, 4, 0)  # clips too
    assert len(np.unique(process.branches.rewards)) > support.num_atoms**2 + 1
    for normalisation in NORMALISATIONS:
        found = evaluate(process, features, support, normalisation=normalisation)
        expected = dense_reference(process, features, support, normalisation)
        np.testing.assert_allclose(found.masses, expected, atol=1e-10)


def test_state_space_products_agree_with_compressed_ones():
    from cramerl.linear.problem import make_problem
    from cramerl.linear.systems import compressed_system, process_moments, state_space_system

    for normalisation in NORMALISATIONS:
        process, features, support = CASES["episodes"]
        problem = make_problem(process, features, support, normalisation, None)
        through = state_space_system(problem)
        compressed = compressed_system(process_moments(problem), problem.whitening.constant, support, normalisation)
        weights = np.random.default_rng(0).normal(size=through.constant.shape)
        np.testing.assert_allclose(compressed.constant, through.constant, atol=1e-12)
        np.testing.assert_allclose(compressed.apply(weights), through.apply(weights), atol=1e-12)
        dense = compressed.dense().reshape(weights.size, weights.size)
        np.testing.assert_allclose(dense @ weights.ravel(), compressed.apply(weights).ravel(), atol=1e-12)


def test_badly_conditioned_features_keep_their_digits():
    process = random_process(0, num_states=30)
    states = np.linspace(0, 1, 30)
    powers = np.stack([states**j for j in range(7)], axis=1)  # condition number of the Gram matrix near 1e9
    good = polynomial(states, 6)
    np.testing.assert_allclose(
        evaluate(process, powers, UNIFORM).masses, evaluate(process, good, UNIFORM).masses, atol=1e-9
    )


def test_iterates_converge_to_the_fixed_point():
    process, features, support = CASES["plain"]
    start = np.random.default_rng(0).normal(size=(3, 9)) * 10
    for normalisation in NORMALISATIONS:
        steps = list(
            projected_bellman_iterates(process, features, support, normalisation=normalisation, initial_weights=start)
        )
        fixed = evaluate(process, features, support, normalisation=normalisation).masses
        np.testing.assert_allclose(steps[-1].masses, fixed, atol=1e-10)
        assert [s.step for s in steps] == list(range(1, 101))
        # Lemma 3 from the second step on: the shape contracts by the discount, the mass has nothing left to change.
        assert all(s.shape_ratio <= 0.9 + 1e-9 for s in steps[2:20])
        assert all(s.mass_change_sq < 1e-20 for s in steps[2:])


def test_a_million_states_is_a_matter_of_size_only():
    """The same code at a size for tests: sparse, Krylov, five rewards, checked by one application of the operator."""
    rng, S = np.random.default_rng(0), 3000
    columns, p = rng.integers(0, S, (S, 5)), rng.dirichlet(np.ones(5), S)
    chain = sparse.csr_array((p.ravel(), columns.ravel(), np.arange(0, 5 * S + 1, 5)), shape=(S, S))
    process = MarkovRewardProcess(chain, rng.integers(0, 5, S) / 4 - 0.5, 0.95)
    features, support = with_bias(rng.normal(size=(S, 30))), Support.uniform(-10, 10, 51)
    found = evaluate(process, features, support, tol=1e-10)
    assert found.method == "krylov"
    np.testing.assert_allclose(found.values, lstd(process, features), atol=1e-9)
    xi, masses = process.stationary_distribution(), found.masses
    matrices = {r: backup_matrix(support, r, 0.95) for r in np.unique(process.branches.rewards)}
    mixed = chain @ masses
    target = np.stack([matrices[r] @ row for r, row in zip(process.branches.rewards, mixed, strict=True)])
    again = features @ np.linalg.solve(features.T @ (xi[:, None] * features), features.T @ (xi[:, None] * target))
    np.testing.assert_allclose(again, masses, atol=1e-10)


@pytest.mark.parametrize("discount", [0.999, 0.9999, 0.99999, 1 - 1e-6])
def test_discounts_close_to_one_are_right_or_warned_of(discount):
    process = examples.ring(discount=discount)
    low, high = process.return_range()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = evaluate(process, tabular(process.num_states), Support.uniform(low - 1, high + 1, 51))
    error = np.abs(found.values - process.true_values()).max() / np.abs(process.true_values()).max()
    assert error < 1e-4 or caught


def test_states_that_are_never_seen_are_right_or_warned_of():
    """The last states of this queue have weights of 1e-36 and less, of which no weighted norm knows anything."""
    process, support = examples.queue(30, arrival=0.1, service=0.9, discount=0.95), Support.uniform(-13, 1, 14)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        right = evaluate(process, tabular(31), support, method="direct")
    np.testing.assert_allclose(right.masses, process.true_returns(support), atol=1e-9)
    with pytest.warns(
        UserWarning, match=r"masses, or means .*, may be wrong by .*: rounding hides states of little weight"
    ) as caught:
        wrong = evaluate(process, tabular(31), support, method="krylov", normalisation="affine")
    assert len(caught) == 1
    assert wrong.residual < 1e-14
    assert np.abs(wrong.masses - right.masses).max() > 1e-6


def test_a_discount_that_leaves_too_few_digits_is_said():
    process = examples.gridworld(4, 4, 1 - 1e-9)
    features, support = random_features(16, 8, 0), Support.uniform(-1e6, 1.001e9, 21)
    with pytest.warns(UserWarning, match=r"1 - discount = 1e-09 leaves too few digits with these features"):
        evaluate(process, features, support)
    with pytest.warns(UserWarning, match=r"means in widths of the support, may be wrong by 2\.\de-06"):
        evaluate(process, tabular(16), support)  # the errors of 21 masses add up in the mean
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nearer = examples.gridworld(4, 4, 1 - 1e-8)
        support = Support.uniform(-1e6, 1.001e8, 21)
        assert "Mean returns equal LSTD's" in evaluate(nearer, tabular(16), support).summary()


def test_weights_that_are_not_stationary_are_taken_with_a_warning():
    process, features, support = CASES["plain"]
    with pytest.warns(UserWarning, match="not stationary .* no longer guaranteed"):
        evaluate(process, features, support, state_distribution=np.full(6, 1 / 6))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate(process, features, support, state_distribution=process.stationary_distribution())


def test_a_disconnected_chain_needs_a_distribution():
    process = MarkovRewardProcess(np.eye(2), [0.5, -0.5], 0.5)
    with pytest.raises(ValueError, match="one stationary distribution"):
        evaluate(process, tabular(2), UNIFORM)
    found = evaluate(process, tabular(2), UNIFORM, state_distribution=[0.5, 0.5])
    np.testing.assert_allclose(found.values, [1, -1], atol=1e-12)


P6 = random_process(0)
BAD = {
    "rank": (lambda: evaluate(P6, np.ones((6, 2)), UNIFORM), "linearly independent .* rank 1 of 2"),
    "zero": (lambda: evaluate(P6, np.eye(6)[:, :2] * [1, 0], UNIFORM), "column 1 is zero"),
    "rows": (lambda: evaluate(P6, np.ones((5, 1)), UNIFORM), r"features must have shape \(6, D\), .* got \(5, 1\)"),
    "nan": (lambda: evaluate(P6, np.full((6, 1), np.nan), UNIFORM), "features must be finite, got nan"),
    "many": (
        lambda: evaluate(P6, random_features(6, 7, 0), UNIFORM),
        "features must have at most 6 columns, one for each state, got 7",
    ),
    "strings": (lambda: evaluate(P6, [["1"]] * 6, UNIFORM), "features must hold real numbers"),
    "xi negative": (
        lambda: evaluate(P6, tabular(6), UNIFORM, state_distribution=[1.5, -0.5, 0, 0, 0, 0]),
        "a smallest entry of -0.5",
    ),
    "text": (lambda: evaluate(P6, "abc", UNIFORM), "features must"),
    "normalisation": (
        lambda: evaluate(P6, tabular(6), UNIFORM, normalisation="never"),
        "normalisation must be one of 'before'",
    ),  # pyright: ignore
    "method": (lambda: evaluate(P6, tabular(6), UNIFORM, method="magic"), "method must be one of"),  # pyright: ignore
    "tol": (lambda: evaluate(P6, tabular(6), UNIFORM, tol=0), r"tol must lie in \(0, 1\), got 0"),
    "xi shape": (
        lambda: evaluate(P6, tabular(6), UNIFORM, state_distribution=[1.0]),
        r"state_distribution must have shape \(6,\)",
    ),
    "xi sum": (
        lambda: evaluate(P6, tabular(6), UNIFORM, state_distribution=np.ones(6)),
        "a smallest entry of 1 and a sum of 6",
    ),
    "process": (lambda: evaluate(3, tabular(6), UNIFORM), "process must be a MarkovRewardProcess, got int"),  # pyright: ignore
    "support": (lambda: evaluate(P6, tabular(6), [0, 1]), "support must be a Support, got list"),  # pyright: ignore
    "initial": (
        lambda: next(projected_bellman_iterates(P6, tabular(6), UNIFORM, initial_weights=np.zeros((2, 2)))),
        r"initial_weights must have shape \(6, 9\), got \(2, 2\)",
    ),
    "polynomial": (lambda: polynomial([0, 1], -1), "degree must be an integer >= 0, got -1"),
    "aggregation": (lambda: aggregation(3, 5), "groups must be at most num_states = 3, got 5"),
    "rbf": (lambda: rbf([0.0, 1.0], [[0.5]], None), "width must be a finite number > 0"),
    "coordinates": (lambda: fourier([[np.inf]], 2), "coordinates must be finite"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    call, sentence = BAD[case]
    with pytest.raises(ValueError, match=sentence):
        call()


def test_features():
    np.testing.assert_array_equal(aggregation(5, 2), [[1, 0]] * 3 + [[0, 1]] * 2)
    np.testing.assert_array_equal(aggregation(3, [1, 0, 1]), [[0, 1], [1, 0], [0, 1]])
    x = np.array([0.0, 0.5, 2.0])
    np.testing.assert_allclose(
        polynomial(x, 2), np.stack([np.ones(3), x - 1, 2 * (x - 1) ** 2 - 1], axis=1), atol=1e-15
    )
    assert polynomial(np.random.default_rng(0).random((9, 3)), 2).shape == (9, 10)
    np.testing.assert_allclose(fourier(x, 1), np.stack([np.ones(3), np.cos(np.pi * x / 2)], axis=1), atol=1e-15)
    assert fourier(np.zeros((4, 2)), 3).shape == (4, 16)
    np.testing.assert_allclose(rbf(x, [[0.5]], 2.0), np.exp(-((x[:, None] - 0.5) ** 2) / 8))
    assert rbf(np.random.default_rng(0).random((7, 2)), 3).shape == (7, 9)
    np.testing.assert_array_equal(random_features(4, 2, 1), random_features(4, 2, 1))
    np.testing.assert_array_equal(with_bias([[2.0], [3.0]]), [[1, 2], [1, 3]])


def test_an_evaluation_prints_one_line_and_notebooks_show_a_table():
    process = examples.queue()
    found = cramerl.evaluate(process, fourier(np.arange(process.num_states), 5))
    assert found.support == suggest_support(process)
    assert repr(found).startswith(f"Evaluation({process.num_states} states, 6 features, Support.uniform(")
    assert "\n" not in repr(found)
    page = ET.fromstring(f"<div>{found._repr_html_()}</div>")
    shown = [row.find("td").text for row in page.iter("tr") if row.find("td") is not None]
    assert shown == [str(x) for x in found.problem.most_visited(10)]
    assert len(list(page.iter("{http://www.w3.org/2000/svg}svg"))) == len(shown)
