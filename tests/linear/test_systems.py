"""Linear systems: their transposes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from oracles import SUPPORTS
from scipy import sparse

from cramerl.linear import DistributionalLSTD, transition_sums
from cramerl.linear.blocks import AtomBlocks, blocks_of_moments, blocks_of_rows
from cramerl.linear.moments import MomentCollector
from cramerl.linear.operators import backup_adjoint
from cramerl.linear.problem import Normalisation, Whitening
from cramerl.linear.transitions import make_rows
from cramerl.projections import backup

UNEVEN = SUPPORTS["uneven"]


@pytest.mark.parametrize("name", ["even", "uneven", "pair"])
def test_backup_and_its_adjoint(name):
    support, rng = SUPPORTS[name], np.random.default_rng(0)
    masses, values = rng.normal(size=(2, 60, support.num_atoms))
    rewards, discounts = 3 * rng.normal(size=60), rng.choice([0.0, 0.5, 0.9, 1.0], 60)
    rewards[:5] = 0.0  # on the atoms
    forth = (backup(support, rewards, discounts, masses) * values).sum(axis=1)
    back = (masses * backup_adjoint(support, rewards, discounts, values)).sum(axis=1)
    np.testing.assert_allclose(forth, back, atol=1e-12)


def fitted(kind: str, normalisation: Normalisation, monkeypatch: pytest.MonkeyPatch) -> DistributionalLSTD:
    """A model whose system was made in the way of this name."""
    rng = np.random.default_rng(1)
    x, following = rng.normal(size=(2, 300, 4))
    x[:, 0] = following[:, 0] = 1.0
    rewards, ended = 2 * rng.normal(size=300), rng.random(300) < 0.2
    if kind == "groups":
        rewards = np.round(rewards / 4)
    if kind in ("passes", "sparse"):
        monkeypatch.setattr(transition_sums, "MOST_NUMBERS", 20)
    if kind == "blocks of rows":
        # Too few for the moments, enough for the blocks.
        monkeypatch.setattr(transition_sums, "MOST_NUMBERS", 16 * UNEVEN.num_atoms**2)
        assert len({*rewards.tolist()}) > UNEVEN.num_atoms**2
    tables = (x, following)
    if kind == "sparse":
        monkeypatch.setattr(transition_sums, "MOST_DENSE", 3)
        tables = tuple(map(sparse.csr_array, tables))
    model = DistributionalLSTD(UNEVEN, 0.9, normalisation=normalisation)
    discounts, weights = rng.choice([0.5, 0.9], 300), rng.exponential(size=300)
    return model.fit(tables[0], rewards, tables[1], ended, discounts=discounts, sample_weight=weights)


@pytest.mark.parametrize("kind", ["groups", "blocks", "blocks of rows", "passes", "sparse"])
@pytest.mark.parametrize("normalisation", ["before", "after", "affine"])
def test_products_with_the_transpose(kind, normalisation, monkeypatch):
    if kind == "sparse" and normalisation != "before":
        return
    model = fitted(kind, normalisation, monkeypatch)
    system, rng = model._system, np.random.default_rng(2)
    for _ in range(3):
        w, v = rng.normal(size=(2, *system.constant.shape))
        assert np.sum(system.apply(w) * v) == pytest.approx(np.sum(w * system.adjoint(v)), abs=1e-9)
    w, v = rng.normal(size=(2, *system.constant.shape))
    np.testing.assert_allclose(system.adjoint(np.stack([w, v])), [system.adjoint(w), system.adjoint(v)], atol=1e-12)
    basis: Any = model._basis_
    assert np.sum(basis.fitted(w) * v) == pytest.approx(np.sum(w * basis.unfitted(v)))
    assert np.sum(basis.plain(w) * v) == pytest.approx(np.sum(w * basis.gathered(v)))


def test_backups_of_many_atoms_have_a_transpose_too(monkeypatch):
    """Where no backup matrices are kept."""
    monkeypatch.setattr("cramerl.linear.systems._MOST_PRODUCT_ATOMS", 3)
    system, rng = fitted("groups", "before", monkeypatch)._system, np.random.default_rng(3)
    w, v = rng.normal(size=(2, *system.constant.shape))
    assert np.sum(system.apply(w) * v) == pytest.approx(np.sum(w * system.adjoint(v)), abs=1e-9)


@pytest.mark.parametrize("normalisation", ["before", "after"])
def test_blocks_and_groups_are_the_same_system(normalisation, monkeypatch):
    blocks = fitted("blocks", normalisation, monkeypatch)
    monkeypatch.setattr("cramerl.linear.systems.blocks_of_moments", lambda *_: None)
    groups = fitted("blocks", normalisation, monkeypatch)
    np.testing.assert_allclose(blocks.weights_, groups.weights_, atol=1e-10)
    w = np.random.default_rng(4).normal(size=blocks._system.constant.shape)
    for model in (blocks, groups):
        dense = model._system.dense()
        np.testing.assert_allclose(np.tensordot(dense, w, 2), groups._system.apply(w), atol=1e-10)
        np.testing.assert_allclose(blocks._system.adjoint(w), np.tensordot(w, dense, 2), atol=1e-10)


def test_blocks_of_rows_are_used_and_the_same(monkeypatch):
    made, plain = [], transition_sums.blocks_of_rows
    monkeypatch.setattr(transition_sums, "blocks_of_rows", lambda *given: made.append(plain(*given)) or made[-1])
    from_moments = fitted("blocks", "before", monkeypatch)
    assert not made
    from_rows = fitted("blocks of rows", "before", monkeypatch)
    assert isinstance(made[0], AtomBlocks)
    by_passes = fitted("passes", "before", monkeypatch)
    assert made[1] is None
    for model in (from_rows, by_passes):
        np.testing.assert_allclose(model.weights_, from_moments.weights_, atol=1e-9)


def test_rows_that_all_end_add_nothing_to_blocks(monkeypatch):
    """Such as those of a part of a log in which every episode has one row."""
    rng = np.random.default_rng(6)
    x = rng.normal(size=(200, 2))
    rows = make_rows(x, rng.normal(size=200), np.roll(x, 1, axis=0), np.arange(200) >= 100)
    basis = Whitening(np.eye(2), 1.0, np.zeros(2), 1.0)
    given = SUPPORTS["even"], 0.9, basis, 1.0, 10_000
    first = blocks_of_rows(rows.take(np.arange(100)), *given)
    monkeypatch.setattr("cramerl.linear.blocks.few_rows", lambda width: 100)  # the second hundred is a part of its own
    both = blocks_of_rows(rows, *given)
    assert first is not None
    assert both is not None
    for one, other in zip(first.blocks, both.blocks, strict=True):
        np.testing.assert_allclose(one, other)


def test_blocks_are_formed_only_where_they_fit():
    support = SUPPORTS["even"]
    rng, collector = np.random.default_rng(5), MomentCollector(support, 0.9, 2)
    left, right = rng.normal(size=(2, 400, 2))
    collector.add(left, right, 0.3 * rng.normal(size=400), np.zeros(400, bool), np.ones(400))
    moments = collector.moments()
    blocks = blocks_of_moments(moments, support, 10_000)
    assert blocks is not None
    numbers = sum(block.size for block in blocks.blocks)
    assert numbers < 4 * support.num_atoms**2  # rewards that are small beside the support reach few atoms
    assert blocks_of_moments(moments, support, numbers) is not None
    assert blocks_of_moments(moments, support, numbers - 1) is None
