"""Atoms lie where returns were seen."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cramerl import Support, backup
from cramerl.linear.logs.atoms import support_for_returns

REACH = Support.uniform(-1.0, 3.0, 51)


def test_few_returns_are_atoms():
    returns = np.repeat([0.0, 0.9, 0.81, 2.5], 30)
    support = support_for_returns(REACH, returns, 51, exact=False)
    assert all(np.abs(support.atoms - value).min() < 1e-12 for value in (-1.0, 0.0, 0.81, 0.9, 2.5, 3.0))
    assert support.spacings.max() <= 4.0 / 20 * (1 + 1e-9)


def test_a_backup_between_few_returns_does_not_widen():
    """Returns 0 and 0.9^t: with these as atoms, a backup moves mass from atom to atom."""
    returns = np.repeat(np.append(0.9 ** np.arange(30), 0.0), 10)
    support = support_for_returns(Support.uniform(0.0, 1.0, 51), returns, 51, exact=False)
    one = np.zeros(support.num_atoms)
    one[np.abs(support.atoms - 0.9**4).argmin()] = 1.0
    moved = backup(support, 0.0, 0.9, one)
    assert moved[np.abs(support.atoms - 0.9**5).argmin()] == pytest.approx(1.0, abs=1e-9)
    even = Support.uniform(0.0, 1.0, 51)
    spread = backup(even, 0.0, 0.9, np.eye(51)[33])
    assert spread.max() < 0.999  # the even support splits it


def test_many_returns_draw_half_of_the_atoms():
    returns = np.random.default_rng(0).exponential(0.05, 5000).clip(0.0, 3.0)
    support = support_for_returns(Support.uniform(0.0, 3.0, 51), returns, 51, exact=False)
    assert support.num_atoms == 51
    assert (support.atoms < 0.25).sum() >= 23  # an even support has five there
    assert support.spacings.max() <= 2 * 3.0 / 50 * (1 + 1e-6)


def test_rounding_does_not_move_atoms():
    """Gaps of the same width are filled in order, whatever the last digits of their ends are."""
    returns = np.repeat(np.array([0.0, 0.3, 0.6, 0.9]), 30)
    for atoms in range(7, 25):
        reaches = Support.uniform(-0.9 - 4e-16, 1.8, 51), Support.uniform(-0.9, 1.8 + 4e-16, 51)
        found, again = (support_for_returns(reach, returns, atoms, exact=True) for reach in reaches)
        np.testing.assert_allclose(found.atoms, again.atoms, atol=1e-12)


def test_too_few_rows_give_an_even_support():
    assert support_for_returns(REACH, np.zeros(19), 51, exact=False) == REACH


@given(st.lists(st.floats(-5, 5), min_size=0, max_size=60), st.integers(1, 40), st.integers(2, 80), st.booleans())
def test_every_sample_gives_a_support_between_the_ends(values, times, num_atoms, exact):
    returns = np.repeat(np.array(values, dtype=float), times)
    support = support_for_returns(REACH, returns, num_atoms, exact=exact)
    assert (support.v_min, support.v_max) == (-1.0, 3.0)
    assert not exact or support.num_atoms == num_atoms
    assert support.smallest_spacing > 1e-9
