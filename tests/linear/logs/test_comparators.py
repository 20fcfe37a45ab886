"""Comparators give the exact values of a small world, within their standard errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from small_worlds import LOGGED, TARGET, WORLD, probs_under, read, values_under

from cramerl.linear import Log
from cramerl.linear.logs.comparators import Comparison, doubly_robust, importance_sampling, monte_carlo

DISCOUNT = 0.9
COLUMNS = WORLD.play(LOGGED, 4000)


def truth(policy: np.ndarray, discount: float = DISCOUNT) -> float:
    """From uniform starts."""
    return float(WORLD.values(policy, discount)[1].mean())


def there(found: Comparison | None) -> Comparison:
    assert found is not None
    return found


def nothing(block: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A model that says nothing."""
    zeros = np.zeros(len(block.rewards))
    return zeros, zeros, zeros


@pytest.mark.parametrize("discount", [0.9, 1.0])
def test_each_is_near_the_truth(discount):
    log, probs, exact = read(COLUMNS), probs_under(TARGET), truth(TARGET, discount)
    logged, weighted = there(monte_carlo(log, discount)), there(importance_sampling(log, discount, probs))
    assert abs(logged.mean - truth(LOGGED, discount)) < 4 * logged.se < 0.3
    assert abs(weighted.mean - exact) < 4 * weighted.se < 0.6
    robust = there(doubly_robust(log, discount, probs, values_under(TARGET, discount)))
    assert abs(robust.mean - exact) < 4 * robust.se < 4 * weighted.se
    wrong = there(doubly_robust(log, discount, probs, values_under(TARGET, discount, 2.0)))
    assert abs(wrong.mean - exact) < 4 * wrong.se < 0.6


def test_errors_are_those_of_many_logs():
    """The standard error is the spread over logs, and the mean of 200 logs is near the truth."""
    kinds: dict[str, list[Comparison]] = {"monte carlo": [], "right": [], "wrong": []}
    for seed in range(200):
        log, probs = read(WORLD.play(LOGGED, 200, seed)), probs_under(TARGET)
        kinds["monte carlo"].append(there(monte_carlo(log, DISCOUNT)))
        for kind, error in (("right", 0.0), ("wrong", 2.0)):
            kinds[kind].append(there(doubly_robust(log, DISCOUNT, probs, values_under(TARGET, DISCOUNT, error))))
    for kind, found in kinds.items():
        means, spread = [one.mean for one in found], float(np.std([one.mean for one in found]))
        assert abs(np.mean(means) - truth(LOGGED if kind == "monte carlo" else TARGET)) < 5 * spread / np.sqrt(200)
        assert np.mean([one.se for one in found]) == pytest.approx(spread, rel=0.15)


def test_on_policy_all_episodes_weigh_the_same():
    log, probs = read(COLUMNS), probs_under(LOGGED)
    one, other = there(monte_carlo(log, DISCOUNT)), there(importance_sampling(log, DISCOUNT, probs))
    assert one[1:4] == pytest.approx(other[1:4])
    assert one.episodes == pytest.approx(4000)
    returns = np.asarray(one.values)
    assert one.mean == pytest.approx(returns.mean())
    assert one.se == pytest.approx(returns.std(ddof=1) / np.sqrt(4000))
    # Without a model, the correction is the mean return.
    assert there(doubly_robust(log, DISCOUNT, probs, nothing))[1:4] == pytest.approx(one[1:4])


def by_hand(log: Log, policy: np.ndarray) -> float:
    """Weighted doubly robust as its authors write it, in loops, with episodes that go on with a ratio of one."""
    episodes = [block for block in log.blocks(1) if len(block.rewards)]
    steps = max(len(block.rewards) for block in episodes)
    ratios = np.ones((len(episodes), steps + 1))
    for ratio, block in zip(ratios, episodes, strict=True):
        products = np.cumprod(probs_under(policy)(block) / block.propensities)
        ratio[1:] = products[np.minimum(np.arange(steps), len(products) - 1)]
    shares, found = ratios / ratios.sum(axis=0), 0.0
    for share, block in zip(shares, episodes, strict=True):
        of_action, of_state, of_next = values_under(policy, DISCOUNT, 0.7)(block)
        for t, reward in enumerate(block.rewards):
            found += DISCOUNT**t * (share[t + 1] * (reward - of_action[t]) + share[t] * of_state[t])
        if not block.complete[0]:
            found += DISCOUNT ** len(block.rewards) * share[len(block.rewards)] * of_next[-1]
    return found


@pytest.mark.parametrize("most", [4, 60])
def test_doubly_robust_is_the_published_sum(most):
    # Next states have columns of their own, so that no row is left out and none weighs less.
    columns = WORLD.play(LOGGED, 60, most=most)
    following = np.append(columns["x"][1:], 0)
    log = read(columns | {"y": following}, next_state="y")
    found = there(doubly_robust(log, DISCOUNT, probs_under(TARGET), values_under(TARGET, DISCOUNT, 0.7)))
    assert found.mean == pytest.approx(by_hand(log, TARGET), rel=1e-10)


def test_cut_episodes():
    log, probs = read(WORLD.play(LOGGED, 4000, most=4)), probs_under(TARGET)
    for found in (there(monte_carlo(log, DISCOUNT)), there(importance_sampling(log, DISCOUNT, probs))):
        assert f"{log.counts.truncated:,} of 4,000 episodes are cut and left out" in found.note
        assert len(np.asarray(found.values)) == log.counts.complete
    robust = there(doubly_robust(log, DISCOUNT, probs, values_under(TARGET, DISCOUNT)))
    assert abs(robust.mean - truth(TARGET)) < 4 * robust.se < 0.3
    never = read({name: column[:3] for name, column in COLUMNS.items()} | {"who": [0] * 3, "died": [False] * 3})
    assert monte_carlo(never, DISCOUNT) is None
    assert importance_sampling(never, DISCOUNT, probs) is None
    single = there(doubly_robust(never, DISCOUNT, probs, values_under(TARGET, DISCOUNT)))
    assert np.isfinite(single.mean)
    assert np.isnan(single.se)


def test_a_policy_that_was_never_followed():
    log, never = read(COLUMNS), lambda block: np.zeros(len(block.rewards))
    assert importance_sampling(log, DISCOUNT, never) is None
    model = there(doubly_robust(log, DISCOUNT, never, values_under(TARGET, DISCOUNT)))
    assert model.episodes == 0
    assert model.mean == pytest.approx(np.mean([WORLD.values(TARGET, DISCOUNT)[1][x] for x in starts(COLUMNS)]))


def starts(columns: dict[str, Any]) -> np.ndarray:
    return columns["x"][np.flatnonzero(np.diff(columns["who"], prepend=-1))]


def test_without_propensities_there_are_no_weights():
    log = read(COLUMNS, propensity=None)
    assert importance_sampling(log, DISCOUNT, probs_under(TARGET)) is None
    assert doubly_robust(log, DISCOUNT, probs_under(TARGET), values_under(TARGET, DISCOUNT)) is None


def test_weights_of_rows_and_one_row_episodes():
    columns = {"who": [1, 2, 3], "x": [0, 0, 1], "a": [0, 1, 1], "r": [1.0, 2.0, 9.0], "died": [True] * 3}
    log = read(columns | {"p": [0.5] * 3, "w": [1.0, 3.0, 0.0]}, weight="w")
    found = there(monte_carlo(log, DISCOUNT))
    assert found.mean == pytest.approx(1.75)
    assert found.episodes == pytest.approx(16 / 10)
    assert found.quantile(1.0) == 2.0
    weighted = there(importance_sampling(log, DISCOUNT, lambda block: np.array([0.5, 0.1, 0.1])))
    assert weighted.mean == pytest.approx((1 * 1.0 + 3 * 0.2 * 2.0) / 1.6)
    robust = there(doubly_robust(log, DISCOUNT, lambda block: np.array([0.5, 0.1, 0.1]), nothing))
    assert robust[1:4] == pytest.approx(weighted[1:4])


def all_three(log: Log, discount: float | None) -> list[float]:
    """Means, errors and effective numbers."""
    probs, values = probs_under(TARGET), values_under(TARGET, DISCOUNT)
    one, other = monte_carlo(log, discount), importance_sampling(log, discount, probs)
    compared = (one, other, doubly_robust(log, discount, probs, values))
    return [number for found in compared for number in there(found)[1:4]]


def test_a_discount_in_each_row():
    log = read(COLUMNS | {"g": np.full(len(COLUMNS["r"]), DISCOUNT)}, discount="g")
    assert all_three(log, None) == pytest.approx(all_three(read(COLUMNS), DISCOUNT))


def test_blocks_of_any_size_give_the_same(monkeypatch):
    log, blocks = read(WORLD.play(LOGGED, 200)), Log.blocks
    whole = all_three(log, DISCOUNT)
    for rows in (1, 17):
        monkeypatch.setattr(Log, "blocks", lambda self, rows=rows: blocks(self, rows))
        assert all_three(log, DISCOUNT) == pytest.approx(whole)


def test_what_a_weighted_sample_says():
    sample = Comparison("Monte Carlo", 0.0, 0.0, 4.0, "", np.array([3.0, 1.0, 2.0, 0.0]), np.array([0.2, 0.5, 0.3, 0]))
    assert [sample.quantile(q) for q in (0, 0.5, 0.51, 0.8, 0.81, 1)] == [1, 1, 2, 2, 3, 3]
    assert [sample.cdf(z) for z in (0.5, 1, 1.5, 2, 3, 9)] == pytest.approx([0, 0.5, 0.5, 0.8, 1, 1])
    assert [sample.cvar(a) for a in (0, 0.5, 0.8, 1)] == pytest.approx([1, 1, 1.1 / 0.8, 1.7])
    with pytest.raises(ValueError, match=r"q must lie in \[0, 1\], got 2"):
        sample.quantile(2)
    with pytest.raises(ValueError, match="weighted doubly robust estimates only the mean"):
        Comparison("weighted doubly robust", 0.0, 0.0, 4.0, "").cvar(0.5)


def test_what_is_wrong_is_named():
    log, probs = read(COLUMNS), probs_under(TARGET)
    with pytest.raises(ValueError, match=r"action_values \(values of states\) must give one number for each row"):
        doubly_robust(log, DISCOUNT, probs, lambda block: (block.rewards, np.zeros(3), block.rewards))
    with pytest.raises(ValueError, match="discount must lie in"):
        monte_carlo(log, 1.1)
