"""Sums over transitions by reward: groups, kinks and products in pieces."""

import numpy as np
import pytest
from oracles import SUPPORTS

from cramerl import backup_matrix
from cramerl.linear.moments import MomentCollector, add_product

UNEVEN = SUPPORTS["uneven"]


def test_kinks_act_like_the_rewards_between_them():
    """The sum of B_g M_g' over the kinks is the sum over all rewards."""
    rng, n = np.random.default_rng(0), 200
    left, right = rng.normal(size=(2, n, 2))
    rewards, ones = 5 * rng.normal(size=n), np.ones(n)
    collector = MomentCollector(UNEVEN, 0.9, 2)
    collector.add(left, right, rewards, ones < 0, ones)
    assert collector.by_kinks
    found = collector.moments()
    assert len(found.rewards) < n
    matrices, kinks = (backup_matrix(UNEVEN, r, 0.9) for r in (rewards, found.rewards))
    expected = np.einsum("na,nb,nkl->abkl", left, right, matrices)
    np.testing.assert_allclose(np.einsum("gab,gkl->abkl", found.crosses, kinks), expected, atol=1e-10)


def test_the_number_of_groups_is_foretold():
    rng = np.random.default_rng(1)
    collector = MomentCollector(UNEVEN, 0.9, 2)
    modes = set()
    for _ in range(12):  # 6 values at a time: soon too many, and shared between the kinks from then on
        rewards, ones = np.round(2 * rng.normal(size=6), 1), np.ones(6)
        foretold = collector.count_after(rewards)
        left, right = rng.normal(size=(2, 6, 2))
        collector.add(left, right, rewards, ones < 0, ones)
        assert foretold == len(collector.moments().rewards)
        modes.add(collector.by_kinks)
    assert modes == {False, True}


@pytest.mark.parametrize("shape", [(1, 1), (300, 1), (500, 64), (130, 65), (70, 130)])
def test_products_in_pieces_are_products(shape):
    left, right = np.random.default_rng(2).normal(size=(2, *shape))
    total = np.ones((shape[1], shape[1]))
    add_product(total, left, right)
    np.testing.assert_allclose(total, 1 + left.T @ right, atol=1e-12)
