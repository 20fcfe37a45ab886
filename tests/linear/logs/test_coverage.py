"""What a log has seen of a policy's actions, of its starts and of its episodes, counted by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from small_worlds import LOGGED, TARGET, WORLD, probs_under, read

from cramerl.linear import Log
from cramerl.linear.logs.coverage import ess_by_step, start_coverage, unseen_action_share
from cramerl.linear.logs.observations import Observations

# Two columns of codes and one of numbers; action 2 is taken in (1, "b") alone.
TABLE: dict[str, Any] = {
    "who": [1, 1, 1, 2, 2, 3],
    "x": [0, 1, 1, 0, 1, 1],
    "y": ["a", "a", "b", "a", "b", "b"],
    "n": [5.0, 5.0, 7.0, 5.0, 7.0, 7.0],
    "a": [0, 1, 2, 1, 0, 0],
    "r": [0.0] * 6,
    "died": [0, 0, 1, 0, 1, 1],
}
WORDS: dict[str, Any] = {"episode": "who", "action": "a", "reward": "r", "terminated": "died"}


def even(states: Observations) -> np.ndarray:
    return np.full((len(states), 3), 1 / 3)


def test_actions_that_nobody_took_where_there_are_codes():
    log = Log.read(TABLE, state=["x", "y"], categorical=["x", "y"], **WORDS)
    # Missing: one action of three in (0, a), two in (1, a), one in (1, b); in 2, 1 and 3 rows.
    assert unseen_action_share(log, even) == pytest.approx((2 * 1 + 1 * 2 + 3 * 1) / 18)
    assert unseen_action_share(log, lambda states: np.eye(3)[states.codes[:, 0]]) == pytest.approx(3 / 6)


def test_actions_that_nobody_took_where_there_are_numbers():
    log = Log.read(TABLE, state="n", **WORDS)
    assert unseen_action_share(log, even) == pytest.approx((3 * 1 + 3 * 1) / 18)
    both = Log.read(TABLE, state=["x", "n"], categorical=["x"], **WORDS)
    assert unseen_action_share(both, even) == pytest.approx((2 * 1 + 1 * 2 + 3 * 1) / 18)


def test_weights_count():
    log = Log.read(TABLE | {"w": [0.0, 1, 0, 0, 0, 0]}, state=["x", "y"], categorical=["x", "y"], weight="w", **WORDS)
    assert unseen_action_share(log, even) == pytest.approx(2 / 3)


def plane(rows: int, seed: int = 0, late: float = 0.0) -> dict[str, np.ndarray]:
    """States in a square; action 1 is taken only where the first number is positive."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, size=(rows, 2)) + late
    actions = rng.integers(2, size=rows) * (x[:, 0] > late)
    columns = {"x0": x[:, 0], "x1": 1e3 * x[:, 1], "a": actions, "r": np.zeros(rows)}
    return columns | {"who": np.arange(rows) // 5, "died": np.arange(rows) % 5 == 4}


@pytest.mark.parametrize("late", [0.0, 1.7e9])
def test_cells_follow_where_actions_were_taken(late):
    log = Log.read(plane(30_000, late=late), state=["x0", "x1"], **WORDS)
    second = lambda states: np.tile([0.0, 1.0], (len(states), 1))  # noqa: E731
    assert unseen_action_share(log, second) == pytest.approx(0.5, abs=0.06)
    where_taken = lambda states: np.eye(2)[(states.numbers[:, 0] > late).astype(int)]  # noqa: E731
    assert unseen_action_share(log, where_taken) < 0.01


def test_few_rows_make_few_cells():
    """Of 150 rows with even actions, no cell is so small that it lacks an action by chance."""
    rng = np.random.default_rng(1)
    log = Log.read(plane(150) | {"a": rng.integers(2, size=150)}, state=["x0", "x1"], **WORDS)
    assert unseen_action_share(log, lambda states: np.full((len(states), 2), 0.5)) == 0


def test_starts_that_the_log_has():
    log = Log.read(TABLE, state=["x", "y"], categorical=["x", "y"], **WORDS)
    states = log.encode({"x": [0, 1, 0, 7], "y": ["a", "b", "b", "a"]})
    assert start_coverage(log, states) == 0.5
    numbers = Log.read(TABLE, state="n", **WORDS)
    assert start_coverage(numbers, numbers.encode({"n": [5.0, 6.0, 7.0, 70.0]})) == 0.5
    with pytest.raises(ValueError, match="states must hold at least one state, got none"):
        start_coverage(log, states.take(slice(0, 0)))


def test_starts_between_states_of_a_line():
    x = np.random.default_rng(0).normal(size=4000)
    log = Log.read({"x": x, "r": x, "who": np.arange(4000), "died": x < 9}, episode="who", state="x", reward="r",
                   terminated="died")  # fmt: skip
    assert start_coverage(log, log.encode({"x": np.linspace(-2.5, 2.5, 5001)})) == 1
    assert start_coverage(log, log.encode({"x": [-6.0, 6.0]})) == 0


def test_starts_near_and_far_in_a_plane():
    log = Log.read(plane(30_000), state=["x0", "x1"], **WORDS)
    near, far = plane(1000, seed=1), plane(1000, seed=1, late=10.0)
    assert start_coverage(log, log.encode(near)) > 0.99
    assert start_coverage(log, log.encode(far)) == 0


def numbers(log: Log, policy: np.ndarray) -> np.ndarray:
    found = ess_by_step(log, probs_under(policy))
    assert found is not None
    return found


def test_effective_number_of_episodes():
    log = read(WORLD.play(LOGGED, 300))
    np.testing.assert_allclose(numbers(log, LOGGED), 300)
    found = numbers(log, TARGET)
    ratios, steps = [], np.arange(len(found))
    for block in log.blocks(1):
        products = np.cumprod(probs_under(TARGET)(block) / block.propensities)
        ratios.append(products[np.minimum(steps, len(products) - 1)])
    sums = np.sum(ratios, axis=0)
    np.testing.assert_allclose(found, sums**2 / np.sum(np.square(ratios), axis=0))
    assert ess_by_step(read(WORLD.play(LOGGED, 5), propensity=None), probs_under(TARGET)) is None


def test_blocks_of_any_size_give_the_same(monkeypatch):
    log = read(WORLD.play(LOGGED, 100))
    whole = numbers(log, TARGET), unseen_action_share(log, lambda s: TARGET[s.codes[:, 0]])
    blocks = Log.blocks
    monkeypatch.setattr(Log, "blocks", lambda self: blocks(self, 7))
    np.testing.assert_allclose(numbers(log, TARGET), whole[0])
    assert unseen_action_share(log, lambda s: TARGET[s.codes[:, 0]]) == whole[1]


def test_what_is_wrong_is_named():
    log = Log.read(TABLE, state=["x", "y"], categorical=["x", "y"], **WORDS)
    with pytest.raises(ValueError, match="log must have discrete actions to tell which were taken, got none"):
        unseen_action_share(Log.read(TABLE, state="n", **WORDS | {"action": None}), even)
    with pytest.raises(ValueError, match=r"policy_probs must give one row of 3 for each state, \(6, 3\), got \(6, 2\)"):
        unseen_action_share(log, lambda states: np.full((len(states), 2), 0.5))
    with pytest.raises(ValueError, match="probabilities of total 1, got values from 1 and totals from 3 to 3"):
        unseen_action_share(log, lambda states: np.ones((len(states), 3)))
