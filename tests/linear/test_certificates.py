import json
import math
import pickle

import numpy as np
import pytest
from oracles_linear import random_process

from cramerl import Support, cramer_distance_sq
from cramerl.linear import (
    MarkovRewardProcess,
    certificates,
    evaluate,
    evaluation,
    examples,
    random_features,
    suggest_support,
    tabular,
    with_bias,
)
from cramerl.linear.reference import reference_distribution

SUPPORT = Support.uniform(-8, 8, 9)


def known(process):
    found = reference_distribution(process)
    assert found is not None
    return found


def test_everything_good():
    process = random_process(0)
    certificate = evaluate(process, with_bias(random_features(6, 2, 0)), SUPPORT).certificate
    assert certificate.constant_in_span
    assert certificate.constant_distance < 1e-9
    assert not certificate.can_clip
    assert certificate.clipped_mass == 0
    assert certificate.contraction_guaranteed == pytest.approx(math.sqrt(0.9))
    # Without clipping and with the constant in the span the spectral radius is the discount itself.
    assert certificate.contraction_observed == pytest.approx(0.9, abs=1e-9)
    assert certificate.lstd_gap < 1e-10
    assert certificate.distribution_bound.holds
    assert certificate.value_bound.holds
    assert certificate.value_constant == 16
    assert len(certificate.sentences) == 7


def test_distance_of_the_constant_and_conditioning_by_hand():
    process = MarkovRewardProcess([[0.5, 0.5], [0.5, 0.5]], [0.0, 0.0], 0.5)
    certificate = evaluate(process, [[1.0], [0.0]], SUPPORT).certificate
    assert not certificate.constant_in_span
    assert certificate.constant_distance == pytest.approx(math.sqrt(0.5))
    doubled = evaluate(process, [[2.0, 0.0], [0.0, 1.0]], SUPPORT).certificate
    assert doubled.gram_condition == pytest.approx(4.0)


def test_clipped_mass_by_hand():
    """One state, reward 1, discount .5, atoms -1, 0, 1: the return is 1, and every backup clips all of its mass."""
    process = MarkovRewardProcess([[1.0]], [1.0], 0.5)
    found = evaluate(process, [[1.0]], Support([-1.0, 0.0, 1.0]))
    np.testing.assert_allclose(found.masses, [[0, 0, 1]], atol=1e-12)
    assert found.certificate.can_clip
    assert found.certificate.clipped_mass == pytest.approx(1.0)
    assert found.certificate.value_bound is None  # the true return, 2, lies outside
    assert "outside the support" in found.certificate.lstd_reason


def test_the_papers_bound_breaks_where_the_errata_say():
    """ERRATA 9f, with lambda = 1: lhs .8718 > rhs .1490 for *after*; the replacement bound and *before* hold.

    There the mass is 0 instead of 1, which puts 1/9 on both sides of the paper's inequality.
    """
    process, features, support = examples.bound_counterexample()
    broken = evaluate(process, features, support, normalisation="after").certificate
    repaired = evaluate(process, features, support, normalisation="before").certificate
    assert broken.bound_kind == "replacement"
    assert broken.distribution_bound.holds
    assert broken.distribution_bound.left + 1 / 9 == pytest.approx(0.8718, abs=1e-3)
    assert repaired.bound_kind == "theorem 1"
    assert repaired.distribution_bound.right + 1 / 9 == pytest.approx(0.1490, abs=1e-3)
    assert repaired.distribution_bound.holds


def test_reasons_for_a_gap_to_lstd():
    process, features = random_process(0), random_features(6, 3, 0)
    after = evaluate(process, features, SUPPORT, normalisation="after").certificate
    assert after.lstd_gap > 1e-3
    assert "constant is not in the span" in after.lstd_reason
    shifted = evaluate(process, features, Support.uniform(-8, 10, 9)).certificate
    assert shifted.lstd_gap > 1e-3
    assert "not centred" in shifted.lstd_reason
    affine = evaluate(process, features, Support.uniform(-8, 10, 9), normalisation="affine").certificate
    assert affine.lstd_gap < 1e-10


def test_no_contraction_is_promised_off_the_stationary_distribution():
    process = random_process(0)
    with pytest.warns(UserWarning, match="not stationary"):
        found = evaluate(process, random_features(6, 2, 0), SUPPORT, state_distribution=np.full(6, 1 / 6))
    assert found.certificate.contraction_guaranteed is None
    assert any("no contraction is guaranteed" in s for s in found.certificate.sentences)
    assert found.certificate.bound_kind == "none"
    assert found.certificate.distribution_bound is None
    assert not any("Theorem 1:" in s for s in found.certificate.sentences)


@pytest.mark.parametrize("normalisation", ["before", "after", "affine"])
def test_bounds_hold_on_random_processes(normalisation):
    for seed in range(6):
        process = random_process(seed, discount=[0.5, 0.9][seed % 2], scale=0.5)
        features = random_features(6, 3, seed)
        certificate = evaluate(process, features, SUPPORT, normalisation=normalisation).certificate
        assert certificate.distribution_bound.holds
        assert certificate.value_bound is None or certificate.value_bound.holds
        assert certificate.contraction_observed <= certificate.contraction_guaranteed + 1e-9


def test_reference_distribution_is_far_closer_than_a_projected_one():
    """Fair bits over powers of 0.5: the return is uniform on [0, 2]. And a point: four states in turn."""
    coins = MarkovRewardProcess([[1.0]], [[(0.0, 0.5), (1.0, 0.5)]], 0.5)
    grid, distribution = known(coins)
    np.testing.assert_allclose(np.cumsum(distribution[0])[100:-100], grid.atoms[100:-100] / 2, atol=2e-3)
    slow = examples.queue(10, discount=0.99)
    grid, distribution = known(slow)
    values = slow.true_values()
    np.testing.assert_allclose(distribution @ grid.atoms, values, rtol=1e-6)
    # Second moments are kept too, which the hat projection at the same spacing does not do.
    np.testing.assert_allclose(distribution @ grid.atoms**2, slow.true_variances() + values**2, rtol=1e-5)


def test_reference_error_against_monte_carlo():
    process = random_process(4)
    grid, distribution = known(process)
    steps = process.sample(100_000, seed=0)
    returns, total = np.empty(100_000), 0.0
    for t in range(99_999, -1, -1):
        returns[t] = total = steps.rewards[t] + 0.9 * total
    for state in range(6):
        seen = returns[:-200][steps.states[:-200] == state]
        empirical = np.searchsorted(np.sort(seen), grid.atoms, side="right") / len(seen)
        assert np.abs(empirical - np.cumsum(distribution[state])).max() < 0.03


def test_certificate_as_plain_values():
    certificate = evaluate(random_process(0), tabular(6), SUPPORT).certificate
    plain = json.loads(json.dumps(certificate.to_dict(), allow_nan=False))
    assert plain["distribution_bound"]["holds"] is True
    assert len(plain["lstd_values"]) == 6


def test_error_in_the_bound_is_the_distance_to_the_distribution():
    """Tabular features: the left side is the distance of two distributions, recomputed on their common refinement."""
    process = random_process(2)
    found = evaluate(process, tabular(6), SUPPORT)
    grid, distribution = known(process)
    union = Support(np.union1d(grid.atoms, SUPPORT.atoms))
    ours, theirs = np.zeros((6, union.num_atoms)), np.zeros((6, union.num_atoms))
    ours[:, np.searchsorted(union.atoms, SUPPORT.atoms)] = found.masses
    theirs[:, np.searchsorted(union.atoms, grid.atoms)] = distribution
    expected = process.stationary_distribution() @ cramer_distance_sq(union, ours, theirs)
    assert found.certificate.distribution_bound.left == pytest.approx(expected, rel=1e-9)


def test_summary_and_plot(tmp_path):
    found = evaluate(examples.random_walk(), with_bias(random_features(19, 3, 0)), SUPPORT)
    text = found.summary(states=[0, 9, 18])
    assert text.splitlines()[0].split() == ["state", "weight", "mean", "5%", "median", "95%", "CVaR", "10%", "mass"]
    assert all(sentence in text for sentence in found.certificate.sentences)
    figure = found.plot(tmp_path / "distributions.png", states=[0, 9])
    assert (tmp_path / "distributions.png").read_bytes().startswith(b"\x89PNG")
    assert len([ax for ax in figure.axes if ax.get_visible()]) == 2


def test_the_certificate_uses_the_system_that_was_solved(monkeypatch):
    found = evaluate(random_process(0), tabular(6), SUPPORT)
    monkeypatch.setattr(evaluation, "process_system", lambda problem: pytest.fail("built again"))
    assert found.certificate.distribution_bound.holds


def test_an_evaluation_can_be_pickled():
    found = evaluate(random_process(0), tabular(6), SUPPORT)
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(again.masses, found.masses)
    assert again.certificate.sentences == found.certificate.sentences


def test_a_contraction_that_is_not_found_is_not_a_number_in_a_sentence(monkeypatch):
    """Close to a discount of one, the search for an eigenvalue would take minutes."""
    monkeypatch.setattr(certificates, "_spectral_radius", lambda system: float("nan"))
    process = examples.ring(discount=0.9)
    sentences = evaluate(process, tabular(process.num_states), suggest_support(process)).certificate.sentences
    assert any(sentence.endswith("or less; how far in the long run was not found.") for sentence in sentences)
    assert "nan" not in " ".join(sentences)
