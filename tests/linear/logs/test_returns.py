"""Realised returns are those of a plain loop, whatever the blocks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_tables import NAMES, table

from cramerl.linear import Log
from cramerl.linear.logs.returns import realised_returns, seen_returns, so_far

UNDISCOUNTED = {name: value for name, value in NAMES.items() if name != "discount"}


def by_hand(block, discount: float) -> np.ndarray:
    found, later = np.zeros(len(block.rewards)), 0.0
    for i in range(len(found))[::-1]:
        factor = discount if block.discounts is None else block.discounts[i]
        if i + 1 == len(found) or block.episode[i + 1] != block.episode[i]:
            later = 0.0
        found[i] = later = block.rewards[i] + factor * later
    return found


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([0.0, 0.5, 0.99, 1.0]), st.integers(1, 60), st.booleans())
def test_returns_are_those_of_a_loop(seed, discount, rows, column):
    log = Log.read(table(12, seed), **(NAMES if column else UNDISCOUNTED))
    for block in log.blocks(rows):
        returns, whole = realised_returns(block, None if column else discount)
        np.testing.assert_allclose(returns, by_hand(block, discount), rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(whole, block.complete)


def test_one_long_episode():
    rewards = np.random.default_rng(0).normal(size=5000)
    columns = {"x": np.zeros(5000), "r": rewards, "done": np.arange(5000) == 4999}
    (block,) = Log.read(columns, state="x", reward="r", terminated="done").blocks()
    np.testing.assert_allclose(realised_returns(block, 1.0)[0], np.cumsum(rewards[::-1])[::-1], atol=1e-10)
    np.testing.assert_allclose(realised_returns(block, 0.97)[0], by_hand(block, 0.97), atol=1e-12)


def test_values_are_combined_within_episodes():
    step = np.array([0, 1, 2, 3, 4, 0, 0, 1])
    found = so_far(np.multiply, np.array([2.0, 3, 5, 7, 11, 13, 0, 17]), step)
    np.testing.assert_array_equal(found, [2, 6, 30, 210, 2310, 13, 0, 0])


def test_seen_returns():
    log = Log.read(
        {"who": [1, 1, 2, 3, 3, 3], "x": range(6), "r": [1, 2, 5, 7, 7, 7], "died": [0, 1, 1, 0, 0, 0]},
        episode="who",
        state="x",
        reward="r",
        terminated="died",
    )
    seen = seen_returns(log, 0.5)
    assert seen[:3] == (3, 2.0, 5.0)
    np.testing.assert_array_equal(seen.start_values, [2.0, 5.0])
    assert seen.truncated_share == 1 / 3
    none = seen_returns(log.take([2]), 0.5)
    assert (none.count, len(none.start_values), none.truncated_share) == (0, 0, 1.0)
    assert np.isnan([none.low, none.high]).all()
    with pytest.raises(ValueError, match=r"discount must lie in \[0, 1\], got None"):
        seen_returns(log, None)
