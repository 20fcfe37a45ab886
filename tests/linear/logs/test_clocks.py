"""Cut episodes: the weights of rows that ended give the true values, and a weight of one does not."""

from __future__ import annotations

import numpy as np
import pytest

from cramerl.linear import Log
from cramerl.linear.logs import clocks
from cramerl.linear.logs.clocks import Tally, choose_shares

STATES, END, DISCOUNT = 3, 0.2, 0.9
# The chain moves on by one state; its return ends with the probability END after each step, with a reward of 1 a step.
TRUTH = 1 / (1 - DISCOUNT * (1 - END))


def played(num_episodes, cut_after, rng):
    """Rows of a chain, with ``cut_after(episode)`` the number of rows after which an episode is cut."""
    rows = []
    for episode in range(num_episodes):
        start, most = int(rng.integers(12, 20)), cut_after(episode)
        for step in range(most(start) if callable(most) else most):
            ended = bool(rng.random() < END)
            rows.append((episode, start + step, (start + step) % STATES, 1.0, ended))
            if ended:
                break
    return {
        name: np.array(column)
        for name, column in zip(("e", "t", "s", "r", "end"), zip(*rows, strict=True), strict=True)
    }


def value(log, weighted=True):
    """The mean over states of the values by plain LSTD with a feature for each state."""
    matrix, right = np.zeros((STATES, STATES)), np.zeros(STATES)
    for block in log.blocks():
        x = np.eye(STATES)[block.observations.numbers[:, 0].astype(int)]
        weights = block.weights if weighted else np.ones(len(block.weights))
        following = x[block.following] * ~block.terminated[:, None]
        matrix += (x[block.current] * weights[:, None]).T @ (x[block.current] - DISCOUNT * following)
        right += (x[block.current] * weights[:, None]).T @ block.rewards
    return np.linalg.solve(matrix, right).mean()


def steps_of(rng):
    return lambda episode: int(rng.geometric(0.25))


CUTS = {
    "at five steps": (lambda rng: lambda episode: 5, "the step of the episode"),
    "at two or at six steps": (lambda rng: lambda episode: int(rng.choice([2, 6])), "the step of the episode"),
    "at the end of the calendar": (lambda rng: lambda episode: lambda start: 21 - start, "the value of t"),
    "at any step alike": (steps_of, "nothing"),
}


@pytest.mark.parametrize("case", CUTS)
def test_values_of_cut_logs_are_true_and_without_weights_they_are_not(case):
    rng = np.random.default_rng(0)
    make, clock = CUTS[case]
    data = played(60_000, make(rng), rng)
    log = Log.read(data, episode="e", time="t", state="s", reward="r", terminated="end")
    assert value(log) == pytest.approx(TRUTH, abs=0.04)
    assert value(log, weighted=False) < TRUTH - 0.1
    assert clock in " ".join(log.notes)
    assert f"{log.counts.dropped:,} of 60,000 episodes are cut" in " ".join(log.notes)


def test_gradual_changes_are_found_in_spans():
    """A log that ends on one day, with times that no two rows share, and steps that tell nothing."""
    rng = np.random.default_rng(0)
    times = np.sort(rng.uniform(size=20_000))
    truth = 0.5 * times**2
    cut = rng.random(20_000) < truth
    never = np.zeros(20_000, dtype=bool)
    time = Tally.empty().add(times, cut, never)
    step = Tally.empty().add(rng.integers(5, size=20_000).astype(float), cut, never)
    shares = choose_shares(step, time)
    assert (shares.clock, shares.spans) == ("time", True)
    np.testing.assert_allclose(shares.at(times), truth, atol=0.08)
    assert shares.at(np.array([-1.0, 2.0])).tolist() == [shares.shares[0], shares.shares[-1]]


def test_a_step_with_more_cuts_than_others_stands_out():
    kept, gone = np.full(30, 198.0), np.full(30, 2.0)
    kept[7], gone[7] = 180, 20
    shares = choose_shares(Tally(np.arange(30.0), kept, gone, np.ones(30)), None)
    np.testing.assert_allclose(shares.at(np.array([6.0, 7])), [0.01, 0.1])


def test_tallies_can_be_added_in_parts():
    rng = np.random.default_rng(0)
    values, cut, ended = rng.integers(9, size=300).astype(float), rng.random(300) < 0.2, rng.random(300) < 0.5
    cut &= ~ended
    parts = Tally.empty()
    for rows in np.array_split(np.arange(300), 7):
        parts = parts.add(values[rows], cut[rows], ended[rows])
    for found, expected in zip(parts, Tally.empty().add(values, cut, ended), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert parts.ended.sum() == ended.sum()
    assert parts.kept.sum() + parts.cut.sum() == (~ended).sum()


def test_a_clock_with_too_many_values_is_not_used(monkeypatch):
    monkeypatch.setattr(clocks, "_MOST_VALUES", 50)
    cut = np.arange(100) >= 90
    never = np.zeros(100, dtype=bool)
    time = Tally.empty().add(np.arange(100.0), cut, never)
    assert not time.usable
    assert len(time.values) == 51
    assert choose_shares(Tally.empty().add(np.zeros(100), cut, never), time).clock == "constant"


def test_long_episodes_cut_at_one_step():
    """A share for each of a thousand steps would cost too much: only the step that stands out has one."""
    kept, gone = np.full(1000, 60.0), np.zeros(1000)
    kept[-1], gone[-1] = 0, 60
    tally = Tally(np.arange(1000.0), kept, gone, np.ones(1000))
    shares = choose_shares(tally, None)
    np.testing.assert_array_equal(shares.values, [999])
    np.testing.assert_array_equal(shares.at(np.array([0.0, 998, 999])), [0, 0, 1])


def test_a_cut_at_one_step_is_found():
    """All that go on after five steps are cut there, and none before."""
    tally = Tally(np.arange(5.0), np.array([80.0, 64, 51, 41, 0]), np.array([0.0, 0, 0, 0, 33]), np.full(5, 20.0))
    shares = choose_shares(tally, None)
    assert shares.clock == "step"
    np.testing.assert_allclose(shares.at(np.arange(5.0)), [0, 0, 0, 0, 1])
