"""Verdicts: each thing that is wrong with an answer has a sentence, and nothing is said against a healthy one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from small_worlds import LOGGED, TARGET, WORLD, read

from cramerl import Support
from cramerl.linear import Log, PolicyEvaluation, evaluate_policy
from cramerl.linear.logs import trust
from cramerl.linear.logs.trust import UNKNOWABLE

NAMES: dict[str, Any] = {"episode": "who", "state": "x", "reward": "r", "terminated": "died"}
ALWAYS_ONE = np.array([[0.0, 1.0]] * 3)


def table(rows: list[tuple[Any, ...]]) -> dict[str, np.ndarray]:
    return dict(zip(("who", "x", "r", "died"), map(np.array, zip(*rows, strict=True)), strict=True))


def patients(count: int, seed: int = 0, most: int = 60) -> dict[str, np.ndarray]:
    """A severity that wanders; a stay ends with a chance of 0.15, with a reward of 1 for those who survive."""
    rng, rows = np.random.default_rng(seed), []
    for who in range(count):
        x = rng.normal()
        for _ in range(most):
            ended = bool(rng.random() < 0.15)
            rows.append((who, x, float(ended and rng.random() < 1 / (1 + np.exp(3 * x))), ended))
            if ended:
                break
            x = 0.9 * x + 0.3 * rng.normal()
    return table(rows)


def hospital(count: int = 600, change: Callable[[Any], Any] = lambda columns: columns, **more: Any) -> Log:
    return Log.read(change(patients(count)), **NAMES | more)


def customers() -> Log:
    """Columns that only grow, and nobody is seen to leave."""
    rng, count, weeks = np.random.default_rng(0), 100, 30
    bought = np.cumsum(rng.random((count, weeks)) < rng.beta(0.5, 8, count)[:, None], axis=1)
    age = np.broadcast_to(np.arange(1.0, weeks + 1), bought.shape)
    spent = np.diff(bought, axis=1, append=bought[:, -1:]) * rng.exponential(30, bought.shape)
    columns = {"x0": np.log1p(bought), "x1": np.log1p(age), "x2": age / weeks, "r": spent}
    whole = {name: column.ravel() for name, column in columns.items()}
    return Log.read(whole | {"who": np.repeat(np.arange(count), weeks)}, episode="who", state="x*", reward="r")


def two_wards() -> Log:
    """Everybody comes through ward 0, which costs three, and leaves ward 1 with a chance of one half."""
    rng, rows = np.random.default_rng(0), []
    for who in range(200):
        rows.append((who, 0, -3.0, False))
        while not rows[-1][3]:
            rows.append((who, 1, 0.1 * rng.normal(), bool(rng.random() < 0.5)))
    return Log.read(table(rows), **NAMES | {"categorical": "x"})


def one_step(reward: Callable[[Any, Any], Any], count: int = 400) -> Log:
    """Episodes of a single row."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, count)
    return Log.read(table([(i, a, b, True) for i, (a, b) in enumerate(zip(x, reward(x, rng), strict=True))]), **NAMES)


def beyond(factor: float) -> Log:
    """Next states so many times as far out as the states."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=400)
    columns = {"x": x, "y": factor * x, "r": x, "died": rng.random(400) < 0.8, "who": np.arange(400)}
    return Log.read(columns, **NAMES | {"next_state": "y"})


def never_takes_one_in_state_two() -> Log:
    columns = WORLD.play(LOGGED, 400)
    kept = ~((columns["x"] == 2) & (columns["a"] == 1))
    return read({name: column[kept] for name, column in columns.items()}, propensity=None)


def explosion() -> tuple[Log, dict[str, Any]]:
    """Few rows, and next states that a line carries far out."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=40)
    columns = {"x": x, "y": 2.0 * x + rng.normal(size=40), "r": x, "who": np.arange(40)}
    return Log.read(columns, episode="who", state="x", next_state="y", reward="r"), {"discount": 0.9}


def line(states: np.ndarray) -> np.ndarray:
    return np.column_stack([np.ones(len(states)), states])


def blind(states: np.ndarray) -> np.ndarray:
    return np.ones((len(states), 1))


def cut_for_end(columns: dict[str, Any]) -> dict[str, Any]:
    return columns | {"died": np.append(np.diff(columns["who"]) != 0, True)}


def without(mask: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda columns: {name: column[~mask(columns)] for name, column in columns.items()}


def shuffled(columns: dict[str, Any]) -> dict[str, Any]:
    return columns | {"y": np.random.default_rng(0).permutation(columns["x"])}


def noise(columns: dict[str, Any]) -> dict[str, Any]:
    return columns | {"x": np.random.default_rng(0).normal(size=len(columns["x"]))}


WHOLE: dict[str, Any] = {"discount": 1.0}
HALF: dict[str, Any] = {"discount": 0.5}
DRIFT: dict[str, Any] = {"discount": 0.99, "features": "columns"}
# What is wrong, the log, how it is evaluated, the least verdict, and what is said.
CASES: dict[str, tuple[Callable[[], Log], dict[str, Any], str, str]] = {
    "3 patients": (lambda: hospital(3), WHOLE, "do not use", "There are 3 episodes: intervals from so few"),
    "20 patients": (lambda: hospital(20), WHOLE, "care", "There are 20 episodes: intervals from so few"),
    "noise as features": (lambda: hospital(change=noise), WHOLE, "care", "features predict (worse|no better)"),
    "raw columns": (hospital, WHOLE | {"features": "columns"}, "care", "Raw columns were asked for as features"),
    "features that see nothing": (
        two_wards,
        HALF | {"features": blind},
        "do not use",
        "do not fall where the distribu",
    ),
    "far from complete episodes": (
        two_wards,
        HALF | {"features": blind},
        "do not use",
        "errors from that of the comple",
    ),
    "terminated forgotten": (lambda: hospital(terminated=None), {}, "do not use", "name a column that says so"),
    "no ends": (lambda: read(WORLD.play(LOGGED, 200), terminated=None), HALF, "care", "No column says where returns"),
    "cut": (lambda: Log.read(patients(600, most=3), **NAMES), WHOLE, "care", r"5\d% of the episodes are cut"),
    "support too small": (
        hospital,
        WHOLE | {"support": Support.uniform(0, 0.5, 21)},
        "do not use",
        "cuts off returns that are worth",
    ),
    "not LSTD's mean": (hospital, WHOLE | {"support": Support.uniform(0, 0.5, 21)}, "do not use", "ordinary LSTD, 0.5"),
    "grid": (hospital, WHOLE | {"support": Support.uniform(-20, 20, 21)}, "care", "The grid of 21 atoms widens"),
    "never failed": (lambda: one_step(lambda x, rng: np.ones(400)), WHOLE, "care", r"0\.007 of them"),
    "drift": (customers, DRIFT | {"regularisation": 1e-6}, "do not use", "proper next distributions instead"),
    "drift, held back by regularisation": (customers, DRIFT, "care", "features predict (worse|no better)"),
    "masses below zero": (lambda: beyond(3.0), HALF | {"features": line}, "care", r"negative for 0\.\d\d in total"),
    "masses far below zero": (
        lambda: beyond(8.0),
        HALF | {"features": line},
        "do not use",
        r"negative for 0\.[5-9]\d in",
    ),
    "means outside": (lambda: beyond(8.0), HALF | {"features": line}, "do not use", "lies outside all possible ret"),
    "few rows": (lambda: hospital(6), WHOLE | {"features": "bins:20"}, "care", "rows for each feature"),
    "starts elsewhere": (hospital, WHOLE | {"start": {"x": [30.0] * 5}}, "do not use", "Only 0% of the start states"),
    "some starts elsewhere": (
        hospital,
        WHOLE | {"start": {"x": [30.0] * 2 + [0.0] * 8}},
        "care",
        "Only 80% of the sta",
    ),
    "actions never taken": (
        never_takes_one_in_state_two,
        {"discount": 0.9, "policy": ALWAYS_ONE},
        "care",
        "of the policy's actions were never taken",
    ),
    "actions that are seldom ones never taken": (
        never_takes_one_in_state_two,
        {"discount": 0.9, "policy": np.array([0.85, 0.15])},
        "care",
        r"An average episode of the policy holds 0\.[12]\d actions",
    ),
    "few episodes like it": (
        lambda: read(WORLD.play(LOGGED, 100)),
        {"discount": 0.9, "policy": ALWAYS_ONE},
        "care",
        "The log has about 7 episodes that look like this policy's",
    ),
}


def rank(verdict: str) -> int:
    return ("use", "care", "do not use").index(verdict)


@pytest.mark.parametrize("case", CASES)
def test_what_is_wrong_is_said(case):
    make, given, least, sentence = CASES[case]
    found = evaluate_policy(make(), intervals="none", **given).trust
    assert any(re.search(sentence, reason) for reason in found.reasons), found.reasons
    assert rank(found.verdict) >= rank(least), found.reasons
    assert found.reasons[-1] == UNKNOWABLE


HEALTHY: dict[str, tuple[Callable[[], Log], dict[str, Any]]] = {
    "hospital": (hospital, WHOLE),
    "discounted": (hospital, {"discount": 0.9}),
    "a regularised line": (hospital, WHOLE | {"regularisation": 10.0}),
    "functions without a constant get one": (hospital, WHOLE | {"features": lambda s: np.column_stack([s, s**2])}),
    "starts that are known": (hospital, WHOLE | {"start": {"x": [0.0, 1.0]}}),
    "another policy": (lambda: read(WORLD.play(LOGGED, 600)), {"discount": 0.9, "policy": TARGET}),
    "one-step episodes": (lambda: one_step(lambda x, rng: x + rng.normal(size=400)), WHOLE),
    "wards": (two_wards, HALF),
}


@pytest.mark.parametrize("case", HEALTHY)
def test_nothing_is_said_against_a_healthy_log(case):
    make, given = HEALTHY[case]
    found = evaluate_policy(make(), intervals="none", **given).trust
    assert found.reasons == (UNKNOWABLE,)
    assert found.verdict == "use"


# The answer is wrong, and the rows look as those of another log would for which it is right.
UNDETECTED: dict[str, Callable[[], Log]] = {
    "cuts taken for ends": lambda: Log.read(cut_for_end(patients(1500, most=3)), **NAMES),
    "survivors of long stays left out": lambda: hospital(change=without(lambda c: np.bincount(c["who"])[c["who"]] < 6)),
    "next states of others": lambda: hospital(change=shuffled, next_state="y"),
}


@pytest.mark.parametrize("case", UNDETECTED)
def test_what_cannot_be_known_is_named_and_no_more(case):
    found = evaluate_policy(UNDETECTED[case](), discount=1.0, intervals="none").trust
    assert found.verdict == "use"
    assert found.reasons == (UNKNOWABLE,)
    for word in ("confounding", "left out because of how they went", "actually cut", "the discount is the one"):
        assert word in UNKNOWABLE


def test_drift_is_told_by_the_radius():
    found = evaluate_policy(customers(), discount=0.9, features="columns", regularisation=1e-3, intervals="none")
    assert found.trust.radius <= 0.95 or any("carried from row to row" in reason for reason in found.trust.reasons)
    log, given = explosion()
    exploded = evaluate_policy(log, features=line, intervals="none", regularisation=0.0, **given).trust
    assert exploded.radius > 0.95
    assert exploded.verdict == "do not use"
    assert any("carried from row to row with a factor of" in reason for reason in exploded.reasons)


@pytest.mark.parametrize("first", [0, 40, 80])
def test_no_small_log_explodes_without_a_word(first):
    """Policies that the log seldom followed, in logs of five to fifteen episodes."""
    for seed in range(first, first + 40):
        log = read(WORLD.play(LOGGED, int(np.random.default_rng(seed).integers(5, 15)), seed))
        policy = ALWAYS_ONE if seed % 2 else TARGET
        found = evaluate_policy(log, policy, discount=0.95, regularisation=1e-6, intervals="none")
        assert found.trust.largest_mass <= 10 or found.trust.verdict == "do not use"
        assert found.trust.verdict != "use"
        support = found.model.support_
        assert support.v_min <= found.mean.value <= support.v_max


def said(found: PolicyEvaluation, **numbers: Any) -> list[tuple[str, str]]:
    return [finding[:2] for finding in trust.findings(found, found.trust._replace(**numbers))]


@pytest.mark.parametrize(
    ("numbers", "verdict", "sentence"),
    [
        ({"largest_mass": 11.0}, "do not use", "Masses reach 11, where probabilities reach 1"),
        ({"radius": 1.01}, "do not use", r"factor of 1\.0100, well above the discount 0\.9: columns that only grow"),
        ({"negative_mass": 0.06}, "care", r"negative for 0\.06 in total"),
        ({"negative_mass": 0.6}, "do not use", r"negative for 0\.60 in total"),
        ({"means_outside": 0.03}, "care", "In 3% of the states"),
        ({"means_outside": 0.3}, "do not use", "In 30% of the states"),
        ({"lstd_gap": 0.2}, "care", r"by 0\.20 standard deviations"),
        ({"lstd_gap": 0.6}, "do not use", r"by 0\.60 standard deviations"),
        ({"variance_ratio": 1.3}, "care", r"variance is 1\.30 times"),
        ({"rows_per_feature": 4.0}, "care", r"There are 4\.0 rows for each feature"),
        ({"rows_per_feature": 1.0}, "do not use", r"There are 1\.0 rows for each feature"),
        ({"held_out_crps": 1.0, "pooled_crps": 1.0}, "care", "predict no better than"),
        ({"held_out_crps": 1.1, "pooled_crps": 1.0}, "care", "predict worse"),
        ({"held_out_crps": 1.3, "pooled_crps": 1.0}, "do not use", "predict worse"),
        ({"monte_carlo_gap": (5.0, 0.2)}, "care", r"The mean is 5\.0 standard errors"),
        ({"monte_carlo_gap": (5.0, 0.3)}, "do not use", r"The mean is 5\.0 standard errors"),
        ({"regularisation_shift": 0.4}, "care", r"The mean moves by 0\.4 standard errors where regularisation"),
        ({"regularisation_shift": 4.0}, "do not use", r"The mean moves by 4\.0 standard errors"),
        (
            {"beyond_cuts": 0.1, "drifting": ("age", "sum")},
            "care",
            "Along episodes age, sum only move one way, and 10% ",
        ),
        ({"beyond_cuts": 0.4, "drifting": ("age",)}, "do not use", "Along episodes age only moves one way, and 40% of"),
        ({"start_coverage": 0.8}, "care", "Only 80% of the start states"),
        ({"start_coverage": 0.4}, "do not use", "Only 40% of the start states"),
    ],
)
def test_thresholds(healthy, numbers, verdict, sentence):
    ((found, reason),) = said(healthy, **numbers)
    assert (found, bool(re.search(sentence, reason))) == (verdict, True)


@pytest.fixture(scope="module")
def healthy() -> PolicyEvaluation:
    return evaluate_policy(read(WORLD.play(LOGGED, 600)), discount=0.9)


def test_differences_of_rounding_are_no_reason():
    """Every reward is one, and episodes are cut: all that is left to compare is noise of rounding."""
    columns = WORLD.play(LOGGED, 200, most=8)
    log = read(columns | {"r": np.ones(len(columns["r"]))}, terminated=None)
    found = evaluate_policy(log, discount=0.9)
    assert found.mean.value == pytest.approx(10.0)
    assert found.trust.regularisation_shift < 1e-3
    assert found.trust.verdict == "care"
    assert not any("CRPS" in reason or "regularisation" in reason for reason in found.trust.reasons)


def test_numbers_that_are_not_known_say_nothing(healthy):
    names = ("radius", "variance_ratio", "held_out_crps", "pooled_crps", "start_coverage", "effective_sample_size")
    assert said(healthy, **dict.fromkeys(names, np.nan), monte_carlo_gap=(np.nan, np.nan), calibration=None) == []


def test_the_gravest_reason_comes_first_and_decides():
    found = evaluate_policy(hospital(), intervals="none", **WHOLE | {"support": Support.uniform(0, 0.5, 21)})
    by_sentence = {sentence: kind for kind, sentence in said(found)}
    ranks = [rank(by_sentence[reason]) for reason in found.trust.reasons[:-1]]
    assert ranks == sorted(ranks, reverse=True)
    assert found.trust.verdict == "do not use"
    assert len(set(found.trust.reasons)) == len(found.trust.reasons)


def test_what_lies_after_the_cuts_depends_on_where_returns_start():
    """30 weeks of each customer, whose last is left out: 29 steps from the first state, 15 from an average one."""
    settings: dict[str, Any] = {"features": "bins:4", "discount": 0.9, "intervals": "none"}
    by_start = {start: evaluate_policy(customers(), start=start, **settings).trust for start in ("episodes", "rows")}
    assert by_start["episodes"].beyond_cuts == pytest.approx(0.9**29)
    assert by_start["rows"].beyond_cuts == pytest.approx(np.mean(0.9 ** np.arange(1, 30)))
    assert not any("only move one way" in reason for reason in by_start["episodes"].reasons)
    assert any("only move one way, and 30%" in reason for reason in by_start["rows"].reasons)


def test_the_numbers_are_what_they_say(healthy):
    found, log = healthy.trust, healthy.log
    (block,) = log.blocks()
    assert found.discount == 0.9
    codes = block.observations.codes
    # The constant is free, and an indicator that occurs c times is shrunk by about c / (c + rho n).
    counts = np.bincount(codes[block.current, 0])
    determined = (counts / (counts + healthy.model.regularisation * log.num_transitions)).sum()
    assert log.num_transitions / found.rows_per_feature == pytest.approx(determined, abs=0.1)
    assert found.rows_per_feature / found.episodes_per_feature == pytest.approx(log.num_transitions / log.num_episodes)
    assert (found.beyond_cuts, found.drifting) == (0.0, ())
    step = np.zeros((3, 3))
    goes_on = ~block.terminated
    np.add.at(step, (codes[block.current[goes_on], 0], codes[block.following[goes_on], 0]), 1.0)
    step /= np.bincount(codes[block.current, 0], minlength=3)[:, None]
    assert found.radius == pytest.approx(0.9 * np.abs(np.linalg.eigvals(step)).max(), abs=0.01)
    masses = healthy.predict({"x": [0, 1, 2]})
    assert found.largest_mass == pytest.approx(masses.max(), abs=0.02)
    assert found.truncated_share == 0
    (played,) = healthy.comparisons
    gap = abs(healthy.mean.value - played.mean)
    assert found.monte_carlo_gap[0] == pytest.approx(gap / played.se)
    assert 0 < found.held_out_crps < found.pooled_crps
    assert found.calibration.p_value > 1e-3
    assert np.isnan([found.effective_sample_size, found.unseen_action_share, found.start_coverage]).all()
    assert np.isnan(found.unseen_in_episode)


def test_the_numbers_of_another_policy():
    log = read(WORLD.play(LOGGED, 300))
    found = evaluate_policy(log, TARGET, discount=0.9)
    names = [comparison.name for comparison in found.comparisons]
    assert names == ["importance sampling", "weighted doubly robust"]
    assert found.trust.effective_sample_size == found.comparisons[0].episodes
    assert found.trust.unseen_action_share == found.trust.unseen_in_episode == 0
    assert found.trust.calibration is None
    truth = WORLD.values(TARGET, 0.9)[1].mean()
    for comparison in found.comparisons:
        assert abs(comparison.mean - truth) < 4 * comparison.se


def test_a_column_that_may_hold_the_ends_is_named():
    table = WORLD.play(LOGGED, 60)
    found = evaluate_policy(read(table | {"Done": np.zeros(len(table["x"]), bool)}, terminated=None), discount=0.9)
    assert any("if Done says it, name it (terminated)" in reason for reason in found.trust.reasons)
