"""Policies that are found in a log are better where the log shows it, and promised to be no more than they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from small_worlds import LOGGED, WORLD, read

from cramerl.linear import ImprovedPolicy, Log, improve_policy

EVEN = np.full((3, 2), 0.5)
ALL_STATES = {"x": [0, 1, 2]}


def table(found: ImprovedPolicy) -> np.ndarray:
    return found.probabilities(ALL_STATES)


def best() -> np.ndarray:
    """The best deterministic policy of eight, by linear equations."""
    tables = [np.eye(2)[[a, b, c]] for a in (0, 1) for b in (0, 1) for c in (0, 1)]
    return max(tables, key=lambda policy: WORLD.values(policy, 0.9)[1].mean())


@pytest.fixture(scope="module")
def found() -> ImprovedPolicy:
    return improve_policy(read(WORLD.play(EVEN, 1500)), discount=0.9)


def test_the_best_policy_is_found_and_valued(found):
    np.testing.assert_array_equal(table(found), best())
    truth = WORLD.values(best(), 0.9)[1].mean()
    assert abs(found.value.value - truth) < 4 * found.value.se
    logged = WORLD.values(EVEN, 0.9)[1].mean()
    assert abs(found.gain.value - (truth - logged)) < 4 * found.gain.se
    assert found.gain.low > 0
    assert found.act({"x": [2, 0]}) == [int(best()[2, 1]), int(best()[0, 1])]


def test_what_is_said(found):
    said = found.summary()
    assert "is better than the log's policy" in said
    assert any(line.split()[:1] == ["optimism"] and f"{found.optimism:.4g}" in line for line in said.split("\n"))
    assert found.optimism == pytest.approx(found.promised - found.value.value)
    assert repr(found).startswith("ImprovedPolicy(the mean return")
    assert "<pre>" in found._repr_html_()
    assert f"verdict on that evaluation: {found.evaluation.trust.verdict}" in said


def lottery(episodes: int, seed: int, actions: int = 4) -> Log:
    """Six states and four actions that all are worth the same, nothing: what looks better is noise."""
    rng = np.random.default_rng(seed)
    columns = {"who": np.arange(episodes), "x": rng.integers(6, size=episodes)}
    columns |= {"a": rng.integers(actions, size=episodes), "r": rng.choice([-1.0, 1.0], episodes)}
    columns |= {"died": np.ones(episodes, bool)}
    return Log.read(columns, episode="who", state="x", categorical="x", action="a", reward="r", terminated="died")


def test_promises_that_are_noise_are_told():
    """Chosen among noise, the policy looks good where it was found and is worth nothing."""
    promised, values, covered = [], [], 0
    for seed in range(8):
        some = improve_policy(lottery(300, seed), discount=0.9, min_count=2, features="bins:10", iterations=1)
        promised.append(some.promised)
        values.append(some.value.value)
        covered += some.value.low <= 0 <= some.value.high
        assert some.optimism == pytest.approx(some.promised - some.value.value)
        if some.gain.low <= 0:
            assert "is not shown to be better than the log's" in some.summary()
    assert np.mean(promised) > 0.1
    assert abs(np.mean(values)) < 0.1
    assert covered >= 6


def risky(episodes: int, seed: int = 0) -> Log:
    """Action 0 pays one; action 1 pays five or loses two, with equal chances."""
    rng = np.random.default_rng(seed)
    actions = rng.integers(2, size=episodes)
    rewards = np.where(actions == 0, 1.0, rng.choice([-2.0, 5.0], episodes))
    columns = {"who": np.arange(episodes), "x": np.zeros(episodes, int), "a": actions, "r": rewards}
    columns["died"] = np.ones(episodes, bool)
    return Log.read(columns, episode="who", state="x", categorical="x", action="a", reward="r", terminated="died")


def test_risk_decides():
    log = risky(600)
    means, tails = improve_policy(log, discount=0.9), improve_policy(log, discount=0.9, risk=("cvar", 0.25))
    assert means.act({"x": [0]}) == [1]
    assert tails.act({"x": [0]}) == [0]
    assert means.value.value == pytest.approx(1.5, abs=0.5)
    assert tails.value.value == pytest.approx(1.0, abs=0.1)
    assert tails.value == tails.evaluation.cvar(0.25)
    assert means.value == means.evaluation.mean
    assert tails.gain.value == pytest.approx(tails.value.value - tails.logged.cvar(0.25).value)
    assert "the mean of the worst 25% of returns" in tails.summary()


def test_actions_that_are_rare_are_not_taken():
    """Action 1 is the better one, and the log has it in few rows."""
    columns: dict[str, Any] = {"who": np.arange(400), "x": np.arange(400) % 2}
    columns["a"] = (np.arange(400) % 40 < 2).astype(int)
    columns |= {"r": 5.0 * columns["a"] + np.arange(400) % 3, "died": np.ones(400, bool)}
    log = Log.read(columns, episode="who", state="x", categorical="x", action="a", reward="r", terminated="died")
    bold = improve_policy(log, discount=0.9, min_count=1, held_out=0.3)
    shy = improve_policy(log, discount=0.9, min_count=50, held_out=0.3)
    np.testing.assert_array_equal(bold.probabilities({"x": [0, 1]}), [[0, 1], [0, 1]])
    np.testing.assert_array_equal(shy.probabilities({"x": [0, 1]}), [[1, 0], [1, 0]])
    assert shy.evaluation.trust.unseen_action_share == 0


def test_what_is_better_by_chance_is_not_taken():
    """Action 1 pays more on average, but the log has few rows of it, and they differ much."""
    number = np.arange(440)
    columns: dict[str, Any] = {"who": number, "x": 0 * number, "a": (number % 11 == 0).astype(int)}
    columns["r"] = np.where(columns["a"] == 1, np.where(number % 2, -1.6, 4.4), 0.9 + 0.2 * (number % 2))
    columns["died"] = number >= 0
    log = Log.read(columns, episode="who", state="x", categorical="x", action="a", reward="r", terminated="died")
    for seed in range(3):
        assert improve_policy(log, discount=0.9, seed=seed).act({"x": [0]}) == [0]


def test_states_of_a_new_kind_get_the_most_frequent_action():
    log = lottery(400, 1)
    some = improve_policy(log, discount=0.9, features="bins:10")
    probs = some.probabilities({"x": [99, 0]})
    np.testing.assert_array_equal(probs.sum(axis=1), 1)
    (block,) = log.blocks()
    counts = np.bincount(block.actions, minlength=4)
    assert counts[probs[0].argmax()] > counts.min()


def test_the_seed_decides_and_nothing_else():
    log = read(WORLD.play(LOGGED, 200))
    one, other, third = (improve_policy(log, discount=0.9, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(table(one), table(other))
    assert (one.value, one.gain, one.promised) == (other.value, other.gain, other.promised)
    assert third.value != one.value


def test_episodes_that_check_did_not_take_part():
    log = read(WORLD.play(LOGGED, 200))
    some = improve_policy(log, discount=0.9, held_out=0.25)
    assert some.evaluation.log.num_episodes == some.logged.log.num_episodes == 50


def test_a_column_of_discounts():
    columns = WORLD.play(EVEN, 400)
    by_row = improve_policy(read(columns | {"g": np.full(len(columns["r"]), 0.9)}, discount="g"))
    np.testing.assert_array_equal(table(by_row), best())
    assert by_row.evaluation.discount == 0.9


def test_progress_is_told():
    said: list[str] = []
    improve_policy(read(WORLD.play(LOGGED, 60)), discount=0.9, iterations=2, on_progress=said.append)
    assert said[0] == "step 1 of policy iteration ..."
    assert said[-1] == "evaluating on held-out episodes ..."


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "risk": ({"risk": "cvar"}, r"risk must be 'mean' or \('cvar', fraction in \(0, 1\]\), got 'cvar'"),
    "fraction": ({"risk": ("cvar", 0)}, r"risk must be 'mean' or .* got \('cvar', 0\)"),
    "held_out": ({"held_out": 1}, r"held_out must lie in \(0, 1\), got 1"),
    "min_count": ({"min_count": 0}, "min_count must be an integer >= 1, got 0"),
    "iterations": ({"iterations": 0}, "iterations must be an integer >= 1, got 0"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_named(case):
    given, match = BAD[case]
    with pytest.raises(ValueError, match=match):
        improve_policy(read(WORLD.play(LOGGED, 20)), **given)


def test_what_is_wrong_with_the_log_is_named():
    with pytest.raises(ValueError, match=r"log must be a Log .* got dict"):
        improve_policy({})
    with pytest.raises(ValueError, match="log must have discrete actions, got none: name them with action="):
        improve_policy(read(WORLD.play(LOGGED, 20), action=None))
    with pytest.raises(ValueError, match=r"log must have at least 4 episodes, .* got 3"):
        improve_policy(read(WORLD.play(LOGGED, 3)))
