"""Supports that data chooses: they hold every reward that was seen, and nothing that returns cannot reach."""

from __future__ import annotations

import numpy as np
import pytest

from cramerl import Support
from cramerl.linear import DistributionalLSTD


@pytest.mark.parametrize("every", [1000, 5000])
def test_rare_rewards_are_worth_what_they_are(every):
    rewards, ones = np.where(np.arange(50_000) % every == 0, 1000.0, 0.0), np.ones((50_000, 1))
    model = DistributionalLSTD(None, 0.5).fit(ones, rewards, ones)
    assert model.predict([[1.0]])[0] == pytest.approx(rewards.mean() / 0.5, rel=0.02)
    assert model.support_.v_max >= 1000


@pytest.mark.parametrize("discount", [0.0, 0.5, 0.99])
def test_a_bandit_without_ends(discount):
    rng = np.random.default_rng(0)
    x, rewards = np.ones((5000, 1)), (rng.random(5000) < 0.01) * 1.0
    model = DistributionalLSTD(None, discount).fit(x, rewards, x)
    assert model.support_.v_min <= 0
    assert model.support_.v_max >= 1
    assert model.predict(x[:1])[0] == pytest.approx(rewards.mean() / (1 - discount), rel=0.02)


def test_every_reward_and_its_future_are_on_the_support():
    rng = np.random.default_rng(1)
    for _ in range(20):
        states, following = rng.integers(0, 3, (2, 200))
        rewards, ended = rng.standard_t(1.5, 200), rng.random(200) < rng.choice([0.0, 0.1, 0.9])
        model = DistributionalLSTD(None, 0.9).fit(np.eye(3)[states], rewards, np.eye(3)[following], ended)
        assert model.support_.v_min <= rewards.min()
        assert model.support_.v_max >= rewards.max()


def episodes_of(rng: np.random.Generator, count: int) -> tuple[np.ndarray, ...]:
    """Episodes of up to 12 steps: features (1, severity, time), and a reward at the end only."""
    rows = []
    for length in rng.integers(1, 13, count):
        severity = rng.normal()
        won = float(rng.random() < 1 / (1 + np.exp(-severity)))
        rows += [(1.0, severity, float(t), won * (t == length - 1), t == length - 1) for t in range(length)]
    table = np.array(rows, float)
    return table[:, :3], table[:, 3], np.roll(table[:, :3], -1, axis=0), table[:, 4]


@pytest.mark.parametrize("discount", [0.9, 1.0])
def test_rewards_at_the_end_alone_bound_the_returns(discount):
    model = DistributionalLSTD(None, discount).fit(*episodes_of(np.random.default_rng(2), 500))
    assert (model.support_.v_min, model.support_.v_max) == (0.0, 1.0)


@pytest.mark.parametrize("discount", [0.95, 1.0])
def test_costs_on_the_way_do_not_raise_the_best_return(discount):
    """Twenty states in a row that cost one each, and a final reward of 20."""
    x = np.tile(np.arange(20), 30)
    rewards = np.where(x == 19, 20.0, -1.0)
    model = DistributionalLSTD(None, discount).fit(np.eye(20)[x], rewards, np.eye(20)[(x + 1) % 20], x == 19)
    assert model.support_.v_max == 20
    assert model.support_.v_min <= -1


def test_the_sentence_says_what_clipping_is_worth():
    rewards, ones = np.where(np.arange(2000) % 1000 == 0, 1000.0, 0.0), np.ones((2000, 1))
    small = DistributionalLSTD(Support.uniform(0, 148, 51), 0.5).fit(ones, rewards, ones)
    report = small.support_report_
    assert report.clipped_above < 0.01  # little mass
    assert report.worth == pytest.approx(2.0 - small.predict([[1.0]])[0])
    assert f"That moves mean returns by {report.worth:.3g} (root mean square): take a wider support." in report.sentence
    wide = DistributionalLSTD(Support.uniform(0, 1010, 51), 0.5).fit(ones, rewards, ones)
    assert "wider" not in wide.support_report_.sentence
    assert wide.support_report_.worth < 0.02


@pytest.mark.parametrize("size", [1e-30, 1e-12, 1e12, 1e90])
def test_rewards_of_any_size(size):
    """Supports are those of rewards of size one, in other units."""
    rng = np.random.default_rng(0)
    x = np.column_stack([np.ones(500), rng.normal(size=500)])
    rewards, following, ended = rng.normal(size=500), x[rng.permutation(500)], rng.random(500) < 0.1
    one, other = (DistributionalLSTD(None, 0.9).fit(x, unit * rewards, following, ended) for unit in (1.0, size))
    np.testing.assert_allclose(other.support_.atoms / size, one.support_.atoms, rtol=1e-6)
    np.testing.assert_allclose(other.predict(x[:5]) / size, one.predict(x[:5]), rtol=1e-6)
