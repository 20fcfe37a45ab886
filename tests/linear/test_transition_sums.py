"""Sums over rows do not depend on how the rows are cut, nor on the order in which parts are put together."""

from __future__ import annotations

import copy
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import SUPPORTS

from cramerl.linear import DistributionalLSTD, transition_sums
from cramerl.linear.transition_sums import TransitionSums
from cramerl.linear.transitions import Rows, make_rows

UNEVEN = SUPPORTS["uneven"]


def transitions(seed: int, kind: str, n: int = 60) -> Rows:
    """Rewards of few values, of any value, or first of one kind and then of the other."""
    rng = np.random.default_rng(seed)
    x, following = rng.normal(size=(2, n, 2))
    rewards = 3 * rng.normal(size=n)
    if kind != "continuous":
        rewards[: n if kind == "discrete" else n // 2] = np.round(rewards[: n if kind == "discrete" else n // 2])
    return make_rows(x, rewards, following, rng.random(n) < 0.2)


def merged(parts: list[TransitionSums], rng: np.random.Generator) -> TransitionSums:
    """Neighbours, or any two, one pair after the other until one is left."""
    while len(parts) > 1:
        i, j = rng.choice(len(parts), 2, replace=False)
        parts[i].merge(parts[j])
        del parts[j]
    return parts[0]


def added(rows: Rows) -> TransitionSums:
    return rows.total(TransitionSums(UNEVEN, 0.9, 2))


def assert_same_sums(found: TransitionSums, expected: TransitionSums) -> None:
    assert found.num_samples == expected.num_samples
    for name in (
        "gram",
        "cross",
        "total",
        "nonzero",
        "weight",
        "reward_vector",
        "extremes",
        "leaving",
        "ended_outside",
    ):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), atol=1e-11)
    # Groups may be values here and kinks there; what they say of any support's backup is the same.
    mine, theirs = found.collector.moments(), expected.collector.moments()
    for name in ("terminal", "lstd_matrix", "lstd_vector"):
        np.testing.assert_allclose(getattr(mine, name), getattr(theirs, name), atol=1e-11)


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    kind=st.sampled_from(["continuous", "discrete", "both"]),
    cuts=st.lists(st.integers(0, 60), max_size=12),
)
def test_any_cut_and_any_tree_give_the_same(seed, kind, cuts):
    rows, rng = transitions(seed, kind), np.random.default_rng(seed)
    places = [0, *sorted(cuts), 60]
    parts = [added(Rows(*(a[i:j] for a in rows[:4]))) for i, j in pairwise(places)]  # some are empty
    whole, found = added(rows), merged(parts, rng)
    assert_same_sums(found, whole)
    models = [DistributionalLSTD(UNEVEN, 0.9) for _ in range(2)]
    for model, data in zip(models, (found, whole), strict=True):
        model._keep(data)
    np.testing.assert_allclose(models[0].weights_, models[1].weights_, atol=1e-10)


def by_kinks(sums: TransitionSums) -> bool:
    assert sums.collector is not None
    (collector,) = sums.collector._collectors.values()
    return collector.by_kinks


@pytest.mark.parametrize("kind", ["continuous", "discrete", "both"])
def test_the_order_of_merging_changes_rounding_only_and_the_same_order_nothing(kind):
    rows = transitions(1, kind)
    parts = [added(part) for part in rows.parts(7)]
    once, again = (merged(copy.deepcopy(parts), np.random.default_rng(5)) for _ in range(2))
    np.testing.assert_array_equal(once.collector.moments().crosses, again.collector.moments().crosses)


def test_groups_are_counted_before_they_are_merged():
    for seed in range(20):
        for kinds in (("discrete", "discrete"), ("discrete", "continuous"), ("continuous", "discrete")):
            one, two = (added(transitions(seed + i, kind, 20)).collector for i, kind in enumerate(kinds))
            foretold = one.count_merged(two)
            one.merge(two)
            assert foretold == len(one.moments().rewards)


def test_values_become_kinks_when_together_they_are_too_many():
    """Seven atoms: at most 49 kinks, and 5 values at a time."""
    parts = [added(transitions(seed, "continuous", 5)) for seed in range(20)]
    assert not any(by_kinks(part) for part in parts)
    found = merged(parts, np.random.default_rng(0))
    assert by_kinks(found)
    assert len(found.collector.moments().rewards) <= 49


def test_moments_that_are_too_large_together_are_given_up(monkeypatch):
    monkeypatch.setattr(transition_sums, "MOST_NUMBERS", 8 * 4)  # eight groups
    one, two, three = (added(transitions(seed, "continuous", 5)) for seed in range(3))
    assert one.collector is not None
    one.merge(two)
    assert one.collector is None
    three.merge(one)  # what one part gave up is lost to all
    assert three.collector is None
    assert three.num_samples == 15
