from functools import cache
from typing import Any

import numpy as np
import pytest
from oracles import SUPPORTS, centring, gram_by_definition, project_by_loop

from cramerl import Support, backup_matrix, cramer_gram
from cramerl.linear import MarkovRewardProcess, Transitions, evaluate
from cramerl.linear.td import LinearTD, StepSize

NORMALISATIONS = ("before", "after", "affine")


def step_by_hand(support, weights, batch, *, discount, normalisation, gram, step):
    """One update, transition by transition, with the matrices of the formulas."""
    k = support.num_atoms
    even = np.full(k, 1 / k)
    base = even if normalisation == "affine" else np.zeros(k)
    total = np.zeros_like(weights)
    for feature, reward, next_feature, ended in zip(*batch, strict=True):
        q, following = base + weights.T @ feature, base + weights.T @ next_feature
        matrix = backup_matrix(support, reward, discount)
        if ended:
            y = project_by_loop(support, np.array([reward]), np.ones(1))
        elif normalisation == "before":
            y = matrix @ (following + (1 - following.sum()) * even)
        elif normalisation == "after":
            y = centring(k) @ matrix @ following + even
        else:
            y = matrix @ following
        total += np.outer(feature, gram @ (y - q))
    return weights + step * total / len(batch[1])


def random_batch(rng, size, num_features, ending):
    ended = rng.random(size) < 0.3 if ending else np.zeros(size, dtype=bool)
    features = rng.normal(size=(2, size, num_features))
    return features[0], rng.normal(scale=3, size=size), features[1], ended


def random_weights(rng, num_features, support, normalisation):
    weights = rng.normal(size=(num_features, support.num_atoms))
    return weights @ centring(support.num_atoms) if normalisation == "affine" else weights


@cache
def process(name: str) -> MarkovRewardProcess:
    if name == "lake":
        return MarkovRewardProcess.from_gymnasium("FrozenLake-v1", "uniform", 0.9)
    rng = np.random.default_rng(1)
    rewards = [[(-1.0, 0.5), (rng.normal(), 0.3), (2.5, 0.2)] for _ in range(6)]
    return MarkovRewardProcess(rng.dirichlet(np.ones(6), size=6), rewards, 0.7)


@cache
def problem(name: str, normalisation: Any) -> tuple[MarkovRewardProcess, np.ndarray, Support, np.ndarray]:
    """A process, features without the constant in their span (the three ways to keep the mass differ), a support that
    clips, and the weights of the fixed point."""
    support = Support([-0.2, 0.0, 0.1, 0.4, 1.0]) if name == "lake" else Support.uniform(-4, 4, 5)
    raw = np.random.default_rng(2).normal(size=(process(name).num_states, 3))
    weights = np.sqrt(process(name).stationary_distribution())[:, None]
    features = raw @ np.linalg.inv(np.linalg.qr(weights * raw)[1])  # orthonormal: all directions learn at one rate
    return (
        process(name),
        features,
        support,
        evaluate(process(name), features, support, normalisation=normalisation).weights,
    )


def mean_step(name, normalisation, weights, **options):
    """Expectation over the stationary process of an update of step one, entry by entry."""
    chain, features, support, _ = problem(name, normalisation)
    xi, branches = chain.stationary_distribution(), chain.branches
    distribution = branches.next_distribution.tocoo()
    total = np.zeros_like(weights)
    for n, following, probability in zip(*distribution.coords, distribution.data, strict=True):
        td = LinearTD(
            support,
            features.shape[1],
            chain.discount,
            normalisation=normalisation,
            step_size=1.0,
            initial_weights=weights,
            **options,
        )
        x = branches.states[n]
        td.update(features[x], branches.rewards[n], features[following], branches.ends[n])
        total += xi[x] * probability * (td.weights - weights)
    return total


@pytest.mark.parametrize("ending", [False, True])
@pytest.mark.parametrize("preconditioned", [True, False])
@pytest.mark.parametrize("normalisation", NORMALISATIONS)
@pytest.mark.parametrize("name", ["atari", "pair", "uneven"])
def test_one_step_equals_slow_twin(name, normalisation, preconditioned, ending):
    support, rng = SUPPORTS[name], np.random.default_rng(3)
    batch = random_batch(rng, 150, 4, ending)  # two blocks of rows
    start = random_weights(rng, 4, support, normalisation)
    gram = np.eye(support.num_atoms) if preconditioned else gram_by_definition(support, 0.7)
    expected = step_by_hand(support, start, batch, discount=0.8, normalisation=normalisation, gram=gram, step=0.05)
    td = LinearTD(
        support,
        4,
        0.8,
        normalisation=normalisation,
        preconditioned=preconditioned,
        mass_penalty=0.7,
        step_size=0.05,
        initial_weights=start,
    )
    td.update(*(batch if ending else batch[:3]))
    np.testing.assert_allclose(td.weights, expected, atol=1e-12 * np.abs(expected).max())
    assert td.num_updates == 1


@pytest.mark.parametrize("ended", [False, True])
def test_a_single_transition_is_a_batch_of_one(ended):
    one, many = (LinearTD(SUPPORTS["uneven"], 3, 0.9, normalisation="after", step_size=0.5) for _ in range(2))
    for _ in range(3):
        one.update([1.0, 2.0, -1.0], 0.5, [0.0, 1.0, 3.0], ended)
        many.update([[1.0, 2.0, -1.0]], [0.5], [[0.0, 1.0, 3.0]], [ended])
    np.testing.assert_array_equal(one.weights, many.weights)
    assert np.abs(one.weights).max() > 0.1


@pytest.mark.parametrize("normalisation", NORMALISATIONS)
def test_the_next_features_of_an_end_do_not_matter(normalisation):
    rng = np.random.default_rng(4)
    features, rewards, following, _ = random_batch(rng, 20, 3, False)
    start = random_weights(rng, 3, SUPPORTS["even"], normalisation)
    results = []
    for scale in (1.0, -1e3):
        td = LinearTD(SUPPORTS["even"], 3, 0.9, normalisation=normalisation, initial_weights=start)
        td.update(features, rewards, scale * following, np.ones(20, dtype=bool))
        results.append(td.weights)
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("ending", [False, True])
def test_means_are_those_of_scalar_td(ending):
    """Without clipping and on centred atoms the mean of the target is r + gamma v(x'), whatever the features: the
    means follow TD(0) step by step. A second oracle for whole runs."""
    rng, support = np.random.default_rng(5), Support.uniform(-10, 10, 11)
    features, rewards, following, ended = random_batch(rng, 2000, 4, ending)
    features, following, rewards = features / 2, following / 2, np.clip(rewards, -2, 2)  # (1 - gamma) z = -2 to 2
    td = LinearTD(support, 4, 0.8, step_size=StepSize(0.3, 0.5, 20))
    td.run(features, rewards, following, ended, batch_size=30)
    scalar = np.zeros(4)
    for t, start in enumerate(range(0, 2000, 30)):
        rows = slice(start, start + 30)
        future = np.where(ended[rows], 0.0, 0.8 * following[rows] @ scalar)
        error = rewards[rows] + future - features[rows] @ scalar
        scalar = scalar + 0.3 / np.sqrt(1 + t / 20) * (features[rows] * error[:, None]).mean(axis=0)
    assert td.num_updates == 67
    np.testing.assert_allclose(td.weights @ support.atoms, scalar, atol=1e-12)
    assert np.abs(scalar).max() > 0.05


@pytest.mark.parametrize("preconditioned", [True, False])
@pytest.mark.parametrize("normalisation", NORMALISATIONS)
@pytest.mark.parametrize("name", ["chain", "lake"])
def test_the_mean_update_vanishes_at_the_fixed_point_only(name, normalisation, preconditioned):
    fixed = problem(name, normalisation)[3]
    step = mean_step(name, normalisation, fixed, preconditioned=preconditioned, mass_penalty=0.3)
    assert np.abs(step).max() < 1e-12
    other = fixed + 0.01 * (centring(5) if normalisation == "affine" else np.eye(5))[:3]
    assert np.abs(mean_step(name, normalisation, other, preconditioned=preconditioned)).max() > 1e-3


@pytest.mark.parametrize("preconditioned", [True, False])
@pytest.mark.parametrize("name", ["chain", "lake"])
def test_the_mean_update_goes_towards_the_fixed_point(name, preconditioned):
    """Downhill in the Cramér metric for *before*, from anywhere: the sign that the paper has wrong."""
    _, _, support, fixed = problem(name, "before")
    for seed in range(3):
        weights = np.random.default_rng(seed).normal(size=fixed.shape)
        step = mean_step(name, "before", weights, preconditioned=preconditioned)
        metric = cramer_gram(support, 1.0) if preconditioned else np.eye(support.num_atoms)
        assert np.sum((fixed - weights) @ metric * step) > 0


def test_the_sign_of_the_paper_diverges():
    chain, features, support, fixed = problem("chain", "before")
    sample = chain.sample(400, seed=0)
    options = {"discount": chain.discount, "normalisation": "before", "gram": gram_by_definition(support, 1.0)}
    uphill = np.zeros_like(fixed)
    td = LinearTD(support, 3, chain.discount, preconditioned=False, step_size=0.02)
    for x, r, y, end in zip(*sample, strict=True):
        batch = features[[x]], np.array([r]), features[[y]], np.array([end])
        uphill = step_by_hand(support, uphill, batch, step=-0.02, **options)
        td.update(*batch)
    assert np.abs(uphill).max() > 1e9
    assert np.linalg.norm(td.weights - fixed) < 0.5 * np.linalg.norm(fixed)


@cache
def trajectories(name: str, count: int) -> list[Transitions]:
    return [process(name).sample(12_000, seed) for seed in range(count)]


@pytest.mark.parametrize(
    ("name", "normalisation", "preconditioned", "step_size"),
    [
        ("chain", "before", True, 0.1),
        ("chain", "after", True, 0.1),
        ("chain", "affine", True, StepSize(0.2, 0.6, 200)),
        ("chain", "before", False, 0.1),
        ("lake", "before", True, 0.1),
    ],
)
def test_averaged_iterates_converge_to_the_fixed_point(name, normalisation, preconditioned, step_size):
    """Mean over independent trajectories within four of its standard errors (from the spread between the trajectories),
    plus 0.001 for the bias of a finite run with Markovian data."""
    chain, features, support, fixed = problem(name, normalisation)
    runs = []
    for sample in trajectories(name, 12):
        td = LinearTD(
            support,
            3,
            chain.discount,
            normalisation=normalisation,
            preconditioned=preconditioned,
            step_size=step_size,
        )
        td.run_transitions(features, sample, batch_size=32)
        runs.append(td.averaged_weights)
    mean, error = np.mean(runs, axis=0), np.std(runs, axis=0, ddof=1) / np.sqrt(len(runs))
    assert error.max() < 0.01
    assert (np.abs(mean - fixed) <= 4 * error + 0.001).all()
    for other in set(NORMALISATIONS) - {normalisation}:
        assert not (np.abs(mean - problem(name, other)[3]) <= 4 * error + 0.001).all()


@pytest.mark.parametrize("preconditioned", [True, False])
def test_affine_weights_keep_rows_of_sum_zero(preconditioned):
    """Also where next features are three times the features: a mass that is off by rounding would grow threefold each
    time it is learned, while the distributions (discount 0.2) converge."""
    rng, support = np.random.default_rng(6), SUPPORTS["even"]
    td = LinearTD(support, 2, 0.2, normalisation="affine", preconditioned=preconditioned, step_size=0.3)
    for _ in range(500):
        features = rng.normal(size=(8, 2))
        td.update(features, rng.uniform(0, 3, size=8) + features[:, 0] / 4, 3 * features)
    assert np.abs(td.weights).max() > 0.01
    assert np.abs(td.weights.sum(axis=1)).max() < 1e-13
    np.testing.assert_allclose(td.masses(rng.normal(size=(5, 2))).sum(axis=1), 1, atol=1e-13)


def test_masses_and_values():
    rng, support = np.random.default_rng(7), SUPPORTS["uneven"]
    cases: list[tuple[Any, float]] = [("before", 0.0), ("affine", 1 / 7)]
    for normalisation, base in cases:
        start = random_weights(rng, 3, support, normalisation)
        td = LinearTD(support, 3, 0.9, normalisation=normalisation, initial_weights=start)
        features = rng.normal(size=(2, 4, 3))
        np.testing.assert_allclose(td.masses(features), features @ start + base, atol=1e-14)
        np.testing.assert_allclose(td.values(features[0, 0]), (features[0, 0] @ start + base) @ support.atoms)
        td.run(*random_batch(rng, 300, 3, True), batch_size=100)
        for averaged, weights in ((True, td.averaged_weights), (False, td.weights)):
            masses = td.masses(features, averaged=averaged)
            np.testing.assert_allclose(masses, features @ weights + base, atol=1e-14)
            np.testing.assert_array_equal(td.values(features, averaged=averaged), masses @ support.atoms)
        assert not np.array_equal(td.weights, td.averaged_weights)


def test_step_sizes():
    assert [StepSize(0.3)(t) for t in (0, 10**6)] == [0.3, 0.3]
    harmonic = StepSize(0.5, exponent=1.0, decay_updates=10)
    assert [harmonic(t) for t in (0, 10, 90)] == [0.5, 0.25, pytest.approx(0.05)]
    assert StepSize(2.0, exponent=0.5, decay_updates=1)(3) == 1.0


def test_the_schedule_is_asked_once_an_update_with_the_updates_made():
    asked = []

    def schedule(num_updates: int) -> float:
        asked.append(num_updates)
        return 0.25 / (num_updates + 1)

    rng = np.random.default_rng(8)
    batches = [random_batch(rng, 5, 2, False) for _ in range(3)]
    td = LinearTD(SUPPORTS["pair"], 2, 0.5, step_size=schedule)
    weights = np.zeros((2, 2))
    for t, batch in enumerate(batches):
        td.update(*batch)
        weights = step_by_hand(
            SUPPORTS["pair"], weights, batch, discount=0.5, normalisation="before", gram=np.eye(2), step=0.25 / (t + 1)
        )
    assert asked == [0, 1, 2]
    np.testing.assert_allclose(td.weights, weights, atol=1e-13)


@pytest.mark.parametrize(("mass_penalty", "preconditioned"), [(1.0, True), (1.0, False), (1e3, False)])
def test_the_default_step_is_a_tenth_of_the_curvature(mass_penalty, preconditioned):
    support, batch = SUPPORTS["uneven"], random_batch(np.random.default_rng(9), 5, 2, False)
    largest = 1.0 if preconditioned else np.linalg.eigvalsh(gram_by_definition(support, mass_penalty))[-1]
    options: dict[str, Any] = {"mass_penalty": mass_penalty, "preconditioned": preconditioned}
    default = LinearTD(support, 2, 0.5, **options)
    explicit = LinearTD(support, 2, 0.5, step_size=0.1 / float(largest), **options)
    default.update(*batch)
    explicit.update(*batch)
    np.testing.assert_allclose(default.weights, explicit.weights, rtol=1e-10)


def iterates(averaging, count):
    """The weights after every update, and the averages after every update."""
    rng = np.random.default_rng(10)
    td = LinearTD(SUPPORTS["pair"], 2, 0.5, step_size=0.3, averaging=averaging)
    every, averages = [], []
    for _ in range(count):
        td.update(*random_batch(rng, 2, 2, True))
        every.append(td.weights)
        averages.append(td.averaged_weights)
    return np.array(every), averages


@pytest.mark.parametrize("averaging", [0, 7, 0.0])
def test_the_average_leaves_out_the_first_updates(averaging):
    every, averages = iterates(averaging, 30)
    for t in range(1, 31):
        expected = every[int(averaging) : t].mean(axis=0) if t > averaging else every[t - 1]
        np.testing.assert_allclose(averages[t - 1], expected, atol=1e-14)


@pytest.mark.parametrize("fraction", [0.1, 0.5, 0.9])
def test_the_average_leaves_out_a_fraction_of_the_updates(fraction):
    every, averages = iterates(fraction, 200)
    for t in range(1, 201):
        begins = [s for s in range(t) if np.allclose(every[s:t].mean(axis=0), averages[t - 1], rtol=0, atol=1e-13)]
        assert len(begins) == 1
        assert fraction**2 * t - 2 <= begins[0] <= fraction * t


def test_nothing_is_averaged_before_the_first_update():
    start = np.ones((1, 2))
    np.testing.assert_array_equal(LinearTD(SUPPORTS["pair"], 1, 0.5, initial_weights=start).averaged_weights, start)


def test_run_is_updates_one_after_another_and_reproducible():
    batch = random_batch(np.random.default_rng(11), 100, 3, True)
    before = [array.copy() for array in batch]
    once, again, by_hand = (LinearTD(SUPPORTS["atari"], 3, 0.9) for _ in range(3))
    once.run(*batch, batch_size=32)
    again.run(*batch, batch_size=32)
    for start in range(0, 100, 32):
        by_hand.update(*(array[start : start + 32] for array in batch))
    assert once.num_updates == 4
    for other in (again, by_hand):
        np.testing.assert_array_equal(once.weights, other.weights)
        np.testing.assert_array_equal(once.averaged_weights, other.averaged_weights)
    for array, copy in zip(batch, before, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_run_transitions_is_run_on_the_rows_of_the_features():
    chain, features, support, _ = problem("lake", "before")
    sample = chain.sample(500, seed=3)
    assert sample.terminated.any()
    by_state, by_row = (LinearTD(support, 3, chain.discount) for _ in range(2))
    by_state.run_transitions(features, sample)
    by_row.run(features[sample.states], sample.rewards, features[sample.next_states], sample.terminated)
    assert by_state.num_updates == 4
    np.testing.assert_array_equal(by_state.weights, by_row.weights)


def test_weights_once_read_stay_as_they_are():
    start = np.ones((1, 2))
    td = LinearTD(SUPPORTS["pair"], 1, 0.5, initial_weights=start)
    start[:] = 7.0
    first = td.weights
    np.testing.assert_array_equal(first, 1.0)
    td.update([1.0], 1.0, [0.5])
    np.testing.assert_array_equal(first, 1.0)
    assert not np.array_equal(td.weights, first)
    with pytest.raises(ValueError, match="read-only"):
        td.weights[0, 0] = 1.0


@pytest.mark.parametrize("normalisation", NORMALISATIONS)
def test_divergence_is_reported(normalisation):
    batch = random_batch(np.random.default_rng(12), 20, 3, False)
    td = LinearTD(SUPPORTS["even"], 3, 0.9, normalisation=normalisation, step_size=1e30)
    many = [np.tile(array, (100, 1) if array.ndim == 2 else 100) for array in batch]
    with pytest.raises(FloatingPointError, match=r"update \d+ diverged.*step size smaller than 1e\+30"):
        td.run(*many, batch_size=20)
    assert 2 < td.num_updates < 50
    assert np.isfinite(td.weights).all()
    assert np.isfinite(td.averaged_weights).all()


def test_masses_that_overflow_are_reported_as_divergence():
    td = LinearTD(SUPPORTS["pair"], 1, 0.9, initial_weights=[[1e308, -1e308]])
    with pytest.raises(FloatingPointError, match="update 1 diverged"):
        td.update([1.0], 0.0, [100.0])
    assert td.num_updates == 0


def test_what_follows_the_end_does_not_count():
    learners = [LinearTD(Support([0.0, 1.0, 2.0]), 2, 0.9) for _ in range(2)]
    for learner, unknown in zip(learners, (0.5, np.nan), strict=True):
        learner.update([[1.0, 0.0], [0.0, 1.0]], [1.0, 2.0], [[0.0, 1.0], [unknown, unknown]], [False, True])
    np.testing.assert_array_equal(learners[0].weights, learners[1].weights)
