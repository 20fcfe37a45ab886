"""Distributions of the log's policy and of policies that never acted, against a small process whose truth is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_worlds import LOGGED, TARGET, WORLD, read

from cramerl import Support
from cramerl.linear import Log, PolicyEvaluation, PolicyEvaluations, evaluate_policy
from cramerl.linear.logs import rows as rows_module
from cramerl.linear.logs.wording import differences
from cramerl.measures import quantile

ALWAYS_ONE = np.array([[0.0, 1.0]] * 3)
POLICIES = {"the log's": (None, LOGGED), "another": (TARGET, TARGET), "never seen": (ALWAYS_ONE, ALWAYS_ONE)}
# All undiscounted returns of the log's policy and TARGET but one in 500, and fewer atoms where any will do.
LATTICE, COARSE = Support(np.arange(-12, 37) / 2), Support.uniform(-6, 18, 11)


def tabular(states: np.ndarray) -> np.ndarray:
    """A constant, and indicators of two of the three states."""
    return np.column_stack([np.ones(len(states)), np.eye(3)[states[:, 0].astype(int), 1:]])


def tabular_pairs(states: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """A constant, and indicators of five of the six pairs of a state and an action."""
    return np.column_stack([np.ones(len(states)), np.eye(6)[(2 * states[:, 0] + actions).astype(int), 1:]])


@pytest.fixture(scope="module")
def log() -> Log:
    return read(WORLD.play(LOGGED, 3000))


def small(episodes: int = 60, seed: int = 0, **more: Any) -> Log:
    return read(WORLD.play(LOGGED, episodes, seed), **more)


def quick(log: Log, policy: Any = None, **more: Any) -> Any:
    """On a support on which nothing is widened or cut off."""
    fixed: dict[str, Any] = {"features": tabular, "features_action": tabular_pairs, "regularisation": 0.0}
    fixed |= {"support": LATTICE, "discount": 1.0}
    return evaluate_policy(log, policy, **fixed | more)


def truth(policy: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns and their CDF from the start of an episode."""
    values, probs = WORLD.distribution(policy)
    return values, np.cumsum(probs.mean(axis=0))


def test_the_truth_is_the_truth():
    """Its two oracles, the exact distribution and episodes that were played, against linear equations for the means."""
    values, probs = WORLD.distribution(TARGET)
    np.testing.assert_allclose(probs @ values, WORLD.values(TARGET, 1.0)[1], atol=1e-6)
    played = WORLD.returns(TARGET, 1.0, 200_000)
    at_most = np.searchsorted(np.sort(played), values, side="right") / len(played)
    np.testing.assert_allclose(at_most, np.cumsum(probs.mean(axis=0)), atol=0.005)
    assert WORLD.returns(TARGET, 0.9, 200_000).mean() == pytest.approx(WORLD.values(TARGET, 0.9)[1].mean(), abs=0.02)


@pytest.mark.parametrize("name", POLICIES)
def test_the_whole_distribution_is_that_of_the_process(log, name):
    given, policy = POLICIES[name]
    found = evaluate_policy(log, given, discount=1.0)
    values, heights = truth(policy)
    mean = WORLD.values(policy, 1.0)[1].mean()
    assert abs(found.mean.value - mean) < 4 * found.mean.se
    assert found.mean.se < 0.2
    at = np.arange(-3.0, 12.0, 0.5) + 0.25  # between two returns, so that where atoms lie does not matter
    expected = np.interp(at - 0.25, values, heights)
    np.testing.assert_allclose([found.cdf(z).value for z in at], expected, atol=0.06)
    probs = np.diff(heights, prepend=0.0)
    for level in (0.1, 0.5, 1.0):
        taken = np.diff(np.minimum(heights, level), prepend=0.0)
        worst = float(taken @ values / level)
        assert abs(found.cvar(level).value - worst) < 4 * found.cvar(level).se + 0.1
    for level in (0.1, 0.5, 0.9):
        near = values[np.searchsorted(heights, [level - 0.05, level + 0.05])]
        assert near[0] - 0.5 <= found.quantile(level).value <= near[1] + 0.5
    assert probs.sum() == pytest.approx(1)


@pytest.mark.parametrize("name", POLICIES)
def test_discounted_returns_are_those_that_are_played(log, name):
    given, policy = POLICIES[name]
    found = evaluate_policy(log, given, discount=0.8)
    played = WORLD.returns(policy, 0.8, 100_000, seed=1)
    at = np.quantile(played, [0.05, 0.2, 0.4, 0.6, 0.8, 0.95])
    np.testing.assert_allclose([found.cdf(z).value for z in at], [np.mean(played <= z) for z in at], atol=0.06)
    assert abs(found.mean.value - WORLD.values(policy, 0.8)[1].mean()) < 4 * found.mean.se
    assert found.lstd_mean == pytest.approx(found.mean.value, abs=0.05)
    worst = np.sort(played)[:25_000].mean()
    assert abs(found.cvar(0.25).value - worst) < 4 * found.cvar(0.25).se + 0.05


@pytest.mark.parametrize("given", [None, TARGET])
def test_the_answer_is_better_the_longer_the_log(log, given):
    values, heights = truth(LOGGED if given is None else given)
    at = LATTICE.atoms[:-1]
    expected = np.interp(at, values, heights)

    def missed(some: Log) -> float:
        return float(np.abs(quick(some, given, intervals="none").distribution.heights - expected).max())

    short = np.median([missed(log.take(np.arange(60 * i, 60 * i + 60))) for i in range(5)])
    assert missed(log) < 0.5 * short
    assert missed(log) < 0.03


def test_intervals_cover_the_truth():
    """Of the mean, a height and CVaR, of the log's policy, another and their difference: 95% in 60 logs."""
    exact = []
    for policy in (LOGGED, TARGET):
        values, heights = truth(policy)
        worst = np.diff(np.minimum(heights, 0.25), prepend=0.0) / 0.25
        exact.append([values @ np.diff(heights, prepend=0.0), heights[values == 1.0][0], worst @ values])
    exact.append(np.subtract(exact[1], exact[0]))
    logs, inside, se, seen = 60, np.zeros((3, 3)), np.zeros((3, 3)), []
    for seed in range(logs):
        found = quick(small(80, seed + 100), {"log": None, "new": TARGET})
        row = [[found[key].mean, found[key].cdf(1.0), found[key].cvar(0.25)] for key in ("log", "new")]
        row.append([found.difference("new", "log", *what) for what in (("mean",), ("cdf", 1.0), ("cvar", 0.25))])
        for i, j in np.ndindex(3, 3):
            inside[i, j] += row[i][j].low <= exact[i][j] <= row[i][j].high
            se[i, j] += row[i][j].se / logs
        seen.append([[estimate.value for estimate in part] for part in row])
    assert (inside >= 51).all(), inside  # 57 are expected; fewer than 51 of 60 have a probability of 0.5%
    ratio = se / np.std(seen, axis=0)
    assert (ratio > 0.75).all(), ratio
    assert (ratio < 1.35).all(), ratio


def test_states_that_are_given():
    log = small(200)
    found = quick(log, TARGET)
    each = found.at({"x": [0, 1, 2]})
    counts = np.bincount(next(iter(log.blocks())).observations.codes[:, 0][_first_rows(log)], minlength=3)
    together = sum(count * one.masses for count, one in zip(counts, each, strict=True)) / counts.sum()
    np.testing.assert_allclose(found.distribution.masses, together, atol=1e-9)
    alone = quick(log, TARGET, start={"x": [2]})
    assert alone.mean == pytest.approx(each[2].mean)
    np.testing.assert_allclose(found.predict({"x": [2, 0]}), [each[2].probs, each[0].probs], atol=1e-9)
    assert abs(alone.mean.value - WORLD.values(TARGET, 1.0)[1][2]) < 4 * alone.mean.se


def _first_rows(log: Log) -> np.ndarray:
    (block,) = log.blocks()
    return block.current[block.step == 0]


def test_all_rows_as_starts():
    log = small(300)
    (block,) = log.blocks()
    share = np.bincount(block.observations.codes[block.current, 0], minlength=3) / len(block.rewards)
    found = quick(log, start="rows")
    each = [one.mean.value for one in found.at({"x": [0, 1, 2]})]
    assert found.mean.value == pytest.approx(share @ each, abs=1e-6)


def test_starts_are_not_biased_where_short_episodes_end_and_long_ones_are_cut():
    """Half of the episodes are cut at once unless they end: those from state 2, which ends most often, stay."""
    columns, rng = WORLD.play(LOGGED, 4000, seed=5), np.random.default_rng(0)
    firsts = np.flatnonzero(np.diff(columns["who"], prepend=-1))
    kept = np.ones(len(columns["who"]), bool)
    for first, stop in zip(firsts, [*firsts[1:], len(kept)], strict=True):
        if not columns["died"][first] and rng.random() < 0.5:
            kept[first + 1 : stop] = False
    log = read({name: column[kept] for name, column in columns.items()}, propensity=None)
    found = quick(log)
    share = np.bincount(columns["x"][firsts], minlength=3) / len(firsts)
    mean = found.distribution.masses @ LATTICE.atoms
    per_state = [one.masses @ LATTICE.atoms for one in found.at({"x": [0, 1, 2]})]
    assert mean == pytest.approx(share @ per_state, abs=0.02)


def test_policies_are_compared_on_the_same_episodes(log):
    found = quick(log, {"new": TARGET, "old": None, "same": TARGET})
    assert isinstance(found, PolicyEvaluations)
    gain = found.difference("new", "old")
    assert gain.value == pytest.approx(found["new"].mean.value - found["old"].mean.value)
    assert gain.se < np.hypot(found["new"].mean.se, found["old"].mean.se)
    assert found.difference("new", "same") == (0.0, 0.0, 0.0, 0.0)
    assert found.difference("old", "new", "cdf", 2.0).value == pytest.approx(
        found["old"].cdf(2.0).value - found["new"].cdf(2.0).value
    )
    with pytest.raises(ValueError, match="what must be 'mean', 'cvar', 'cdf' or 'below', got 'median'"):
        found.difference("new", "old", "median", 0.5)
    with pytest.raises(ValueError, match="level must be above 0 for CVaR, got 0"):
        found.difference("new", "old", "cvar", 0.0)
    with pytest.raises(ValueError, match="z must be a finite number, got None"):
        found.difference("new", "old", "cdf")


@pytest.mark.parametrize("names", [("new", "old"), ("old", "new")])
def test_a_policy_is_told_by_what_it_has_more_than_the_one_that_made_the_log(names):
    found = quick(small(), {name: TARGET if name == "new" else None for name in names})
    assert found.baseline == "old"
    gain = found.difference("new", "old")
    said = differences(found).splitlines()
    assert said[0] == "Policy new has more than old"
    assert f"{gain.value:.4g}   95% interval {gain.low:.4g} to {gain.high:.4g}" in said[1]
    assert PolicyEvaluations(a=found["new"], b=found["new"]).baseline == "a"


def test_the_bootstrap_pairs_policies_too():
    log, policies = small(150), {"new": TARGET, "old": None}
    influence = quick(log, policies).difference("new", "old")
    drawn = quick(log, policies, intervals="bootstrap", resamples=60).difference("new", "old")
    assert drawn.value == pytest.approx(influence.value)
    assert drawn.se == pytest.approx(influence.se, rel=0.3)
    mixed = PolicyEvaluations(new=quick(log, TARGET, intervals="bootstrap", resamples=60), old=quick(log))
    assert mixed.difference("new", "old").se == pytest.approx(mixed["new"].mean.se + mixed["old"].mean.se)


def test_without_intervals_there_are_none():
    found = quick(small(), intervals="none")
    assert np.isnan([found.mean.low, found.mean.se, found.cvar(0.1).high, found.quantile(0.5).se]).all()
    assert str(found.mean) == f"{found.mean.value:.4g}"
    alone = evaluate_policy(small(2).take([0]), discount=0.9)
    assert np.isnan(alone.mean.se)
    assert alone.trust.verdict == "do not use"


def test_blocks_of_any_size_give_the_same(monkeypatch):
    log = small()
    whole = quick(log, TARGET)
    monkeypatch.setattr(rows_module, "_BLOCK_NUMBERS", 40)
    parts = quick(log, TARGET)
    np.testing.assert_allclose(parts.distribution.masses, whole.distribution.masses, atol=1e-10)
    assert parts.cvar(0.2) == pytest.approx(whole.cvar(0.2))
    monkeypatch.setattr(rows_module, "_KEPT_NUMBERS", 0)
    again = quick(log, TARGET)
    assert again.mean == pytest.approx(whole.mean)
    assert again.trust.negative_mass == pytest.approx(whole.trust.negative_mass)


def moved(columns: dict[str, Any], change: Any) -> dict[str, Any]:
    return columns | {"r": change(columns)}


def assert_moved(found: PolicyEvaluation, plain: PolicyEvaluation, scale: float, shift: float) -> None:
    """All figures are those of the returns times a factor plus a number."""
    for one, other in (
        (found.mean, plain.mean),
        (found.cvar(0.3), plain.cvar(0.3)),
        (found.quantile(0.4), plain.quantile(0.4)),
    ):
        assert one[:3] == pytest.approx([scale * number + shift for number in other[:3]], abs=1e-6 * scale)
        assert one.se == pytest.approx(scale * other.se, rel=1e-6)
    z = 1.3  # between two atoms
    assert found.cdf(scale * z + shift) == pytest.approx(plain.cdf(z), abs=1e-6)


@settings(max_examples=8)
@given(st.integers(0, 99), st.floats(0.01, 100), st.sampled_from([None, TARGET]))
def test_rewards_in_other_units(seed, scale, policy):
    columns = WORLD.play(LOGGED, 40, seed)
    plain = quick(read(columns), policy, support=COARSE)
    larger = read(moved(columns, lambda c: scale * c["r"]))
    assert_moved(quick(larger, policy, support=Support(scale * COARSE.atoms)), plain, scale, 0.0)
    chosen = [quick(some, policy, discount=0.9, support=None, num_atoms=11) for some in (larger, read(columns))]
    assert_moved(chosen[0], chosen[1], scale, 0.0)


@settings(max_examples=8)
@given(st.integers(0, 99), st.floats(-20, 20), st.sampled_from([None, TARGET]))
def test_a_bonus_at_the_end_moves_every_return(seed, shift, policy):
    columns = WORLD.play(LOGGED, 40, seed)
    paid = read(moved(columns, lambda c: c["r"] + shift * c["died"]))
    plain = quick(read(columns), policy, support=COARSE)
    assert_moved(quick(paid, policy, support=Support(COARSE.atoms + shift)), plain, 1.0, shift)


@settings(max_examples=8)
@given(st.integers(0, 99), st.sampled_from([None, TARGET]))
def test_the_order_of_episodes_does_not_matter(seed, policy):
    columns = WORLD.play(LOGGED, 40, seed)
    order = np.argsort(np.random.default_rng(seed).permutation(40)[columns["who"]], kind="stable")
    found, plain = (
        quick(read({name: column[rows] for name, column in columns.items()}), policy, support=COARSE)
        for rows in (order, slice(None))
    )
    assert_moved(found, plain, 1.0, 0.0)


@settings(max_examples=8)
@given(st.integers(0, 99), st.sampled_from([None, TARGET]))
def test_every_episode_twice(seed, policy):
    """No value changes and standard errors shrink by the root of two; weights of two change nothing."""
    columns = WORLD.play(LOGGED, 40, seed)
    again = {name: np.tile(column, 2) for name, column in columns.items()}
    again["who"][len(columns["who"]) :] += 40
    weights = columns | {"w": np.full(len(columns["r"]), 2.0)}
    logs = read(columns), read(again), read(weights, weight="w")
    plain, twice, weighed = (quick(some, policy, support=COARSE) for some in logs)
    assert_moved(weighed, plain, 1.0, 0.0)
    for one, other in ((twice.mean, plain.mean), (twice.cdf(1.0), plain.cdf(1.0)), (twice.cvar(0.3), plain.cvar(0.3))):
        assert one.value == pytest.approx(other.value, abs=1e-8)
        assert one.se == pytest.approx(other.se * np.sqrt(0.5 * (80 / 79) / (40 / 39)), rel=1e-6)
    assert twice.quantile(0.4).value == plain.quantile(0.4).value


def test_weights_are_multiplicities():
    columns = WORLD.play(LOGGED, 40)
    often = 1 + columns["who"] % 3
    order = np.repeat(np.arange(len(often)), often)
    copies = {name: column[order] for name, column in columns.items()}
    copy = np.arange(len(order)) - np.repeat(np.cumsum(often) - often, often)
    copies["who"] = copies["who"] + 1000 * copy
    by_episode = np.argsort(copies["who"], kind="stable")
    drawn = quick(read({name: column[by_episode] for name, column in copies.items()}), TARGET)
    weighed = quick(read(columns | {"w": often.astype(float)}, weight="w"), TARGET)
    np.testing.assert_allclose(weighed.distribution.masses, drawn.distribution.masses, atol=1e-9)


def test_a_column_of_discounts():
    columns = WORLD.play(LOGGED, 60)
    by_row = read(columns | {"g": np.full(len(columns["r"]), 0.9)}, discount="g")
    found = quick(by_row, TARGET, discount=None)
    assert found.mean == pytest.approx(quick(read(columns), TARGET, discount=0.9).mean)
    assert found.discount == 0.9
    assert found.trust.discount == 0.9
    with pytest.raises(ValueError, match=r"discount must be None for a log that has a column of discounts, got 0\.5"):
        evaluate_policy(by_row, discount=0.5)
    assert quick(read(columns, discount=0.8), discount=None).discount == 0.8
    assert quick(read(columns), discount=None).discount == 0.99


def test_means_are_proper_even_where_masses_are_not():
    """The mean, quantiles and CVaR are of one distribution on the support; LSTD's mean is another figure."""
    x = np.linspace(-1, 1, 40)
    columns = {"x": x, "r": np.where(x > 0.9, 50.0, 0.0), "died": np.ones(40, bool), "who": np.arange(40)}
    log = Log.read(columns, episode="who", state="x", reward="r", terminated="died")
    found = evaluate_policy(log, features="columns", start={"x": [-1.0]}, discount=0.9)
    assert found.lstd_mean < -1
    assert found.distribution.masses.min() < -0.01
    assert found.mean.value >= found.model.support_.v_min >= -1
    assert found.mean.value == pytest.approx(found.distribution.probs @ found.model.support_.atoms)
    assert found.cvar(1.0).value == pytest.approx(found.mean.value)
    assert found.quantile(0.5).value == quantile(found.model.support_, found.distribution.probs, 0.5)


def test_what_is_asked_for_is_used():
    log = small(200)
    said: list[str] = []
    found = evaluate_policy(log, num_atoms=30, regularisation=0.01, level=0.8, on_progress=said.append)
    assert (found.model.support_.num_atoms, found.model.regularisation) == (30, 0.01)
    assert any("features" in line for line in said)
    wide = evaluate_policy(log, num_atoms=30, regularisation=0.01, level=0.99)
    assert wide.mean.high - wide.mean.value > 1.8 * (found.mean.high - found.mean.value)
    assert evaluate_policy(log, support=LATTICE).model.support_ == LATTICE
    assert "mean" in repr(found)
    assert "<svg" in found._repr_html_()
    assert found.summary().index("mean") < found.summary().index("Verdict") < found.summary().index("Support")


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "level": ({"level": 1}, r"level must lie in \(0, 1\), got 1"),
    "level as text": ({"level": "0.9"}, r"level must lie in \(0, 1\), got '0\.9'"),
    "intervals": ({"intervals": "delta"}, "intervals must be one of 'influence', 'bootstrap', 'none', got 'delta'"),
    "resamples": ({"resamples": 1}, "resamples must be an integer >= 2, got 1"),
    "num_atoms": ({"num_atoms": 1}, "num_atoms must be an integer >= 2, got 1"),
    "discount": ({"discount": 1.5}, r"discount must lie in \[0, 1\], got 1\.5"),
    "no policies": ({"policy": {}}, "policy must have at least one policy, got an empty dictionary"),
    "start": ({"start": "all"}, "start must be 'episodes', 'rows' or a table of states, got 'all'"),
    "support": ({"support": 5}, "support must be a Support or None, got int"),
    "features": ({"features": "wavelets"}, "features must be one of"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_named(case):
    given, match = BAD[case]
    with pytest.raises(ValueError, match=match):
        evaluate_policy(small(12), **given)


def test_what_is_wrong_with_the_log_is_named():
    with pytest.raises(ValueError, match=r"log must be a Log .* got dict"):
        evaluate_policy(WORLD.play(LOGGED, 3))
    endless = read(WORLD.play(LOGGED, 30), terminated=None)
    with pytest.raises(ValueError, match="discount must be less than 1 for a log that does not say where returns end"):
        evaluate_policy(endless, discount=1)


def test_an_action_that_was_never_taken_is_worth_what_the_state_is():
    """Not what all states are on average, which is what regularisation knows without the state."""
    rng = np.random.default_rng(0)
    states = rng.choice(["bad", "good"], 2000, p=[0.9, 0.1])
    actions = np.where(states == "good", 0, rng.integers(0, 2, 2000))
    columns = {"who": np.arange(2000), "s": states, "a": actions, "r": np.where(states == "good", 10.0, 0.0)}
    columns["end"] = np.ones(2000, bool)
    log = Log.read(columns, episode="who", state="s", action="a", reward="r", terminated="end", discount=1.0)
    found = evaluate_policy(log, np.array([0.0, 1.0]), start={"s": ["good"]})
    assert found.mean.value == pytest.approx(10.0, abs=0.5)
    assert found.trust.verdict != "use"


def test_what_an_action_does_elsewhere_says_little_where_it_was_never_taken():
    """In nine states of ten the second action costs a little; in the last one nobody took it."""
    rng, states = np.random.default_rng(1), np.repeat(np.arange(10), 60)
    actions = np.where(states == 9, 0, rng.integers(0, 2, 600))
    rewards = 5.0 - 0.4 * actions + rng.normal(size=600)
    columns = {"who": np.arange(600), "s": states, "a": actions, "r": rewards, "end": np.ones(600, bool)}
    names = {"episode": "who", "state": "s", "categorical": "s", "action": "a", "reward": "r", "terminated": "end"}
    log = Log.read(columns, discount=1.0, **names)
    found = evaluate_policy(log, np.array([0.0, 1.0]), start={"s": [9]}).mean.value
    own = rewards[states == 9].mean()
    assert own - 0.3 < found < own + 0.05
