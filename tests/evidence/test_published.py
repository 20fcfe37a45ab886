"""Published scores."""

from cramerl.evidence.published import PUBLISHED, published_scores


def test_published_scores_are_those_of_the_table():
    # Corners of the published table, typed in a second time.
    by = {(a.game, a.agent, a.source): a for a in PUBLISHED}
    assert len(by) == len(PUBLISHED) == 5 * 2 * 3 + 2
    assert by["asterix", "dqn", "Dopamine TF"].scores == {10: 2382, 20: 2899, 25: 3056, 50: 3203, 100: 3222, 200: 2711}
    assert by["space_invaders", "c51", "Dopamine JAX"].scores == {25: 887, 50: 1569, 100: 3615, 200: 7453}
    assert by["seaquest", "c51", "DQN Zoo"].scores == {50: 18418, 100: 88597, 200: 127228}
    assert by["pong", "c51", "CleanRL"].scores == {40: 19.5}
    assert {a.source for a in published_scores("pong") if not a.sticky} == {"DQN Zoo", "CleanRL"}
    assert by["pong", "c51", "DQN Zoo"].nearest(7e6) == 50
    assert by["pong", "c51", "Dopamine TF"].nearest(80e6) == 100
    assert by["space_invaders", "c51", "Dopamine TF"].scores[by["pong", "c51", "Dopamine TF"].nearest(1e7)] == 686
    assert by["pong", "c51", "Dopamine TF"].protocol == "sticky actions (0.25)"
