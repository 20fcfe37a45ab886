"""Published scores."""

import pytest

from cramerl.evidence.published import PUBLISHED, published_scores


def test_published_scores_are_those_of_the_table():
    # Corners of the published table, typed in a second time.
    by = {(a.game, a.agent, a.source): a for a in PUBLISHED}
    assert len(by) == len(PUBLISHED) == 5 * 2 * 3 + 2
    assert by["asterix", "dqn", "Dopamine TF"].scores == {10: 2382, 20: 2899, 25: 3056, 50: 3203, 100: 3222, 200: 2711}
    assert by["space_invaders", "c51", "Dopamine JAX"].scores == {25: 887, 50: 1569, 100: 3615, 200: 7453}
    assert by["seaquest", "c51", "DQN Zoo"].scores == {
        10: 695,
        20: 2472,
        50: 18418,
        100: 88597,
        200: 127228,
    }
    assert by["pong", "c51", "CleanRL"].scores == {40: 19.5}
    assert {a.source for a in published_scores("pong") if not a.sticky} == {"DQN Zoo", "CleanRL"}
    assert by["pong", "c51", "DQN Zoo"].nearest(7e6) == 10
    assert by["pong", "c51", "DQN Zoo"].nearest(40e6) == 50
    assert by["pong", "c51", "Dopamine TF"].nearest(80e6) == 100
    assert by["space_invaders", "c51", "Dopamine TF"].scores[by["pong", "c51", "Dopamine TF"].nearest(1e7)] == 686
    assert by["pong", "c51", "Dopamine TF"].protocol == "sticky actions (0.25)"


def test_early_points_of_dqn_zoo_have_the_least_and_the_most_of_five_seeds():
    # The five seeds of some of them, typed in from the source.
    seeds = {
        ("breakout", "c51", 10): (334.76, 350.80, 370.22, 346.05, 327.46),
        ("pong", "dqn", 10): (-8.094, -16.515, -12.121, -11.217, -16.333),
        ("space_invaders", "dqn", 20): (733.31, 799.17, 783.03, 804.20, 769.41),
        ("asterix", "c51", 20): (10579, 9905, 18065, 14409, 18135),
    }
    zoo = [one for one in PUBLISHED if one.source == "DQN Zoo"]
    assert len(zoo) == 10
    for one in zoo:
        assert set(one.spread) == {10, 20}
        for at, (low, high) in one.spread.items():
            assert low <= one.scores[at] <= high
            if its := seeds.get((one.game, one.agent, at)):
                near = {"abs": 0.5 if abs(low) >= 100 else 0.05}
                assert (one.scores[at], low, high) == pytest.approx((sum(its) / 5, min(its), max(its)), **near)
    assert not any(one.spread for one in PUBLISHED if one.source != "DQN Zoo")
