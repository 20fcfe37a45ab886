"""Ratios of policies: long products stay finite, and what a policy gives is checked."""

from __future__ import annotations

import numpy as np
import pytest
from small_worlds import LOGGED, WORLD, read

from cramerl.linear.logs.ratios import StepMasses, episode_log_masses, log_ratios


@pytest.mark.parametrize("ratio", [1e-4, 1e3])
def test_products_of_thousands_of_steps(ratio):
    columns = {"who": np.repeat([0, 1], 3000), "x": np.zeros(6000, int), "a": np.zeros(6000, int), "r": np.zeros(6000)}
    log = read(columns | {"died": np.arange(6000) % 3000 == 2999, "p": np.full(6000, 1e-3)})
    masses = StepMasses.of(log, lambda block: np.full(len(block.rewards), ratio * 1e-3))
    np.testing.assert_allclose(masses.total, np.log(2) + np.log(ratio) * np.arange(1, 3001))
    np.testing.assert_allclose(masses.effective, 2.0)


def test_actions_that_the_policy_would_not_take():
    log = read({"who": [1, 1, 1, 2], "x": [0] * 4, "a": [0, 1, 0, 0], "r": [1.0] * 4, "died": [0, 0, 1, 1],
                "p": [0.5, 0.5, 0.25, 0.5]})  # fmt: skip
    (block,) = log.blocks()
    found = log_ratios(block, lambda block: np.where(block.actions == 1, 0.0, 1.0))
    np.testing.assert_allclose(found, [np.log(2), -np.inf, -np.inf, np.log(2)])
    masses = StepMasses.of(log, lambda block: np.where(block.actions == 1, 0.0, 1.0))
    np.testing.assert_allclose(np.exp(masses.total), [4, 2, 2])
    np.testing.assert_allclose(masses.effective, [2, 1, 1])
    np.testing.assert_array_equal(StepMasses.of(log, lambda block: np.zeros(4)).effective, 0)


def test_the_weight_of_an_episode_is_that_of_its_first_row():
    columns = {"who": [1, 1, 2], "x": [0] * 3, "a": [0] * 3, "r": [1.0] * 3, "died": [0, 1, 1], "p": [1.0] * 3}
    (block,) = read(columns | {"w": [2.0, 5.0, 3.0]}, weight="w").blocks()
    np.testing.assert_allclose(np.exp(episode_log_masses(block, lambda block: np.ones(3))), [2, 2, 3])


def test_what_is_wrong_is_named():
    (block,) = read(WORLD.play(LOGGED, 2, seed=1)).blocks()
    n = len(block.rewards)
    with pytest.raises(ValueError, match=rf"probs_of_block must give one number for each row, shape \({n},\), got"):
        log_ratios(block, lambda block: np.ones((n, 2)))
    with pytest.raises(ValueError, match="probs_of_block must give finite numbers, got nan"):
        log_ratios(block, lambda block: np.full(n, np.nan))
    with pytest.raises(ValueError, match="probs_of_block must give probabilities >= 0, got -1"):
        log_ratios(block, lambda block: -np.ones(n))
    with pytest.raises(ValueError, match="log must have a column of propensities, got none"):
        log_ratios(block._replace(propensities=None), lambda block: np.ones(n))
