"""Features that are nearly dependent: the same span in another basis must give the same distributions."""

import warnings

import numpy as np
import pytest

from cramerl import Support
from cramerl.linear import DistributionalLSTD, MarkovRewardProcess, evaluate
from cramerl.linear.defects import row_defect, state_defect
from cramerl.linear.solve import MOST_ERROR
from cramerl.linear.transitions import make_rows

SUPPORT = Support.uniform(-6, 6, 13)


def bases(rng, rows, columns=5, apart=1e-4):
    """Random features with a constant, and the same span with two columns that hardly differ."""
    good = np.column_stack([np.ones(rows), rng.normal(size=(rows, columns - 1))])
    bad = good.copy()
    bad[:, -1] = bad[:, -2] + apart * bad[:, -1]
    return good, bad


@pytest.fixture
def process(rng):
    """States that differ by nine orders of magnitude in how often they are visited."""
    transition = rng.dirichlet(np.ones(12), 12)
    transition[:, -3:] *= 1e-9
    return MarkovRewardProcess(transition / transition.sum(axis=1, keepdims=True), rng.normal(size=12), 0.5)


@pytest.mark.parametrize("normalisation", ["before", "after", "affine"])
def test_evaluate_keeps_its_digits_in_rare_states(rng, process, normalisation):
    """As many features as states span all functions, whatever they are: the answer is the tabular one."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        right, found = (
            evaluate(process, phi, SUPPORT, normalisation=normalisation)
            for phi in (np.eye(12), rng.normal(size=(12, 12)))
        )
    np.testing.assert_allclose(found.masses, right.masses, atol=1e-9)


def test_evaluate_keeps_its_digits_near_a_discount_of_one():
    """States are alike in weight, but the third column is nearly the sum of the others."""
    moves = np.array([[326895, 264140, 457541], [387999, 442022, 218555], [519908, 267308, 261360]]) / 2**20
    rewards = 1e-6 * np.array([1.2630090175812954, 1.2541526417992752, 1.391133633033014])
    features = np.array(
        [
            [2.061292984531311, -0.4142400055763965, 1.647058250407908],
            [0.827160405842689, -2.8911915625206612, -2.0640554839580902],
            [-0.4395117294023563, 0.28082370868792184, -0.15863362075489804],
        ]
    )
    process = MarkovRewardProcess(moves / moves.sum(axis=1, keepdims=True), rewards, 0.999999)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        right, found = (evaluate(process, phi, Support([0.5, 1.5])) for phi in (np.eye(3), features))
    np.testing.assert_allclose(found.masses, right.masses, atol=1e-8)


@pytest.fixture
def rows(rng):
    good, bad = bases(rng, 400)
    order = np.roll(np.arange(400), -1)
    return good, bad, order, rng.normal(size=400), rng.random(400) < 0.1


@pytest.mark.parametrize("normalisation", ["before", "after", "affine"])
@pytest.mark.parametrize("regularisation", [0.0, 1e-3])
def test_fit_keeps_its_digits(rows, normalisation, regularisation):
    """With a penalty, the two bases mean different things, so then the defect alone is judged."""
    good, bad, order, rewards, ended = rows
    settings = {"normalisation": normalisation, "regularisation": regularisation}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        right, found = (
            DistributionalLSTD(SUPPORT, 0.9, **settings).fit(x, rewards, x[order], ended) for x in (good, bad)
        )
    assert found.residual_ < MOST_ERROR
    if not regularisation:
        np.testing.assert_allclose(found.predict_masses(bad), right.predict_masses(good), atol=1e-9)


def test_sums_alone_say_that_they_lose_digits(rows):
    _, bad, order, rewards, ended = rows
    with pytest.warns(UserWarning, match=r"the masses may be wrong by .*: a discount of 0.9 leaves too few digits"):
        DistributionalLSTD(SUPPORT, 0.9).partial_fit(bad, rewards, bad[order], ended).solve()


def test_a_narrow_support_far_from_zero_is_warned_of():
    """Atoms at 2715 that are a thousandth apart are rounded by 1e-10 of their distance, 1 / (1 - discount) times."""
    process = MarkovRewardProcess([[0.5, 0.5], [0.3, 0.7]], np.array([-0.06, -0.0601]), 0.99998)
    with pytest.warns(UserWarning, match="leaves too few digits with these features and this support"):
        evaluate(process, np.eye(2), Support.uniform(-2715.801, -2715.790, 12))


@pytest.mark.parametrize("normalisation", ["before", "after", "affine"])
def test_the_defects_of_a_solution_vanish_and_those_of_others_do_not(rng, process, rows, normalisation):
    good, _, order, rewards, ended = rows
    model = DistributionalLSTD(SUPPORT, 0.9, normalisation=normalisation).fit(good, rewards, good[order], ended)
    basis, sums = model._basis_, model._sums
    found = np.linalg.solve(basis.inverse, model.weights_)

    def of_rows(weights):
        return np.abs(row_defect(rows_of(good, rewards, order, ended), sums, basis, normalisation, 0.0, weights)).max()

    assert of_rows(found) < 1e-12 < 1e-3 < of_rows(found + 0.1 * rng.normal(size=found.shape))
    evaluation = evaluate(process, bases(rng, 12)[0], SUPPORT, normalisation=normalisation)
    solved = np.linalg.solve(evaluation.problem.whitening.inverse, evaluation.weights)
    assert np.abs(state_defect(evaluation.problem, solved)).max() < 1e-12
    assert np.abs(state_defect(evaluation.problem, solved + 0.1)).max() > 1e-3


def rows_of(features, rewards, order, ended):
    return make_rows(features, rewards, features[order], ended, None, None)


def test_a_constant_that_rounding_hides_is_free_of_the_penalty(rng):
    """t + 100 and t + 101 span the constant, which their Gram matrix shows to six digits only."""
    t, following = rng.uniform(size=(2, 200))
    x, x_next = (np.column_stack([100 + one, 101 + one]) for one in (t, following))
    model = DistributionalLSTD(SUPPORT, 0.9, regularisation=0.01).fit(x, t, x_next)
    np.testing.assert_allclose(model.predict_masses(x).sum(axis=1), 1, atol=1e-7)
    assert "A constant is in the span" in model.certificate_.sentences[0]


def test_a_constant_that_is_lost_is_warned_of(rng):
    x = rng.normal(size=(2, 2))
    x[:, 1] = x[:, 0] + 1e-4 * x[:, 1]
    states, following = rng.integers(0, 2, size=(2, 40))
    with pytest.warns(UserWarning, match="total mass of .* in place of one: columns of X depend"):
        DistributionalLSTD(SUPPORT, 0.9, regularisation=0.01).fit(x[states], 1.0 * states, x[following])


def test_a_correction_that_leads_nowhere_is_undone():
    """With no digits left, the answer is that of the plain system, with a warning."""
    process = MarkovRewardProcess([[0.5, 0.5], [0.3, 0.7]], np.array([1e-3, 1.1e-3]), 1 - 1e-9)
    features = np.array([[1.0, 1.0], [1.0, 1.0 + 1e-5]])
    with pytest.warns(UserWarning, match="may be wrong by"):
        found = evaluate(process, features, Support.uniform(1e6, 1e6 + 1e-3, 4))
    assert np.abs(found.masses).max() < 10
