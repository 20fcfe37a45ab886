"""Episodes one by one: those of a compiled loop against its replay, those of a host loop against its environments."""

from typing import Any

import numpy as np
import pytest
from lenient import lenient

from cramerl.deep import compiled_loop, episodes
from cramerl.deep.compiled_loop import CompiledLoop
from cramerl.deep.env_group import EnvGroup
from cramerl.deep.envs.atari import AtariEnvs
from cramerl.deep.envs.gymnax import GymnaxEnv
from cramerl.deep.replay import LAST, TERMINATED
from cramerl.deep.schedule import Schedule
from cramerl.runs import build
from cramerl.runs.presets import preset

CONFIG = preset("smoke", "dqn", "CartPole-v1", hidden_units=(4,))
DISCOUNT = 0.9


@pytest.fixture(autouse=True)
def others_are_lenient():
    with lenient():
        yield


def make(num_envs: int, seeds: list[int], time_limit: int = 30) -> CompiledLoop:
    env = GymnaxEnv("CartPole-v1", time_limit)
    schedule = Schedule(num_envs, min_replay_steps=4000, replay_steps=4000, discount=DISCOUNT)
    return CompiledLoop(env, build.make_learner(CONFIG, env.spec), schedule, seeds)


def from_replay(rows: dict[str, np.ndarray], num_envs: int) -> list[tuple[int, int, float, int, float]]:
    """Step, environment, return, length and discounted return of each episode, from the rows of a replay."""
    found = []
    for env in range(num_envs):
        rewards, flags = rows["rewards"][:, env], rows["flags"][:, env]
        seen: list[float] = []
        for row, (reward, flag) in enumerate(zip(rewards, flags, strict=True)):
            if flag & LAST:  # the last frame; the transition before it ended the episode
                discounted = sum(DISCOUNT**i * x for i, x in enumerate(seen))
                found.append((row * num_envs, env, float(sum(seen)), len(seen), discounted))
                seen = []
            else:
                seen.append(float(reward))
                assert not flag & TERMINATED or row + 1 == len(flags) or flags[row + 1] & LAST
    return sorted(found)


def assert_found(taken: list[episodes.Episodes], expected: list[tuple[int, int, float, int, float]]) -> None:
    one = episodes.join(taken)
    rows = list(zip(one.steps, one.envs, one.returns, one.lengths, strict=True))
    wanted = [row[:4] for row in expected]
    if len(rows) > len(wanted):  # episodes that ended in the last step, whose last frame is not in the replay yet
        assert all(row[0] == one.steps[-1] for row in rows[len(wanted) :])
    assert rows[: len(wanted)] == wanted
    np.testing.assert_allclose(one.realised[: len(wanted)], [row[4] for row in expected], rtol=1e-5)
    assert not one.cut.any()


def test_the_episodes_of_a_compiled_loop_are_those_of_its_replay():
    loop = make(3, [5])
    taken = []
    for blocks in (1, 7, 40, 52):
        loop.advance(blocks)
        taken += loop.take_episodes()
    expected = from_replay(loop.read_rows(0, loop.row), 3)
    assert {row[3] for row in expected} >= {30}, "some must end at the time limit"
    assert len({row[3] for row in expected}) > 5
    assert_found(taken, expected)
    assert len(loop.take_episodes()[0].steps) == 0


def test_a_record_that_is_full_is_read_in_time(monkeypatch):
    whole = make(3, [5])
    whole.advance(100)
    monkeypatch.setattr(episodes, "_STEPS_KEPT", 50)  # four blocks of four rows
    compiled_loop.compiled_program.cache_clear()
    small = make(3, [5])
    assert small.lanes.record.lengths.shape == (16, 3)
    small.advance(100)
    for a, b in zip(whole.take_episodes()[0], small.take_episodes()[0], strict=True):
        np.testing.assert_array_equal(a, b)
    compiled_loop.compiled_program.cache_clear()


def test_each_lane_has_its_own():
    loop = make(2, [3, 4])
    loop.advance(60)
    taken, rows = loop.take_episodes(), loop.read_rows(0, loop.row)
    for lane in (0, 1):
        assert_found([taken[lane]], from_replay({name: x[:, lane] for name, x in rows.items()}, 2))
    assert taken[0].lengths.tolist() != taken[1].lengths.tolist()


def test_what_a_group_of_environments_ends(rng):
    """Asterix: three lives, each a return of its own for the learner, which sees clipped rewards."""
    envs = AtariEnvs("asterix", 2, max_episode_frames=4 * 150)
    group = EnvGroup(envs, 4, in_thread=False, discount=DISCOUNT, clip_rewards=True)
    group.reset(0)
    seen: list[list[float]] = [[], []]
    lives: list[list[float]] = [[], []]
    ended, realised, expected, pieces = [], [], [], []
    for _ in range(400):
        actions = rng.integers(0, envs.spec.num_actions, 2).astype(np.int32)
        group.start(actions)
        found = group.finish()
        if found is not None:
            ended += list(zip(found.envs.tolist(), found.returns.tolist(), found.lengths.tolist(), strict=True))
            realised += found.realised.tolist()
        rewards, terminated = group.outcome.rewards, group.outcome.terminated
        for i in (0, 1):
            if group.first[i] and not terminated[i]:
                continue  # a restart
            seen[i].append(float(rewards[i]))
            lives[i].append(float(np.clip(rewards[i], -1, 1)))
            if terminated[i] or group.last[i]:
                pieces.append(sum(DISCOUNT**t * x for t, x in enumerate(lives[i])))
                lives[i] = []
            if group.last[i]:
                expected.append((4 + i, sum(seen[i]), len(seen[i])))
                seen[i] = []
    assert ended == expected
    assert len(expected) >= 4
    assert len(pieces) > len(expected)
    assert sum(piece > 0 for piece in pieces) > 4
    np.testing.assert_allclose(realised, pieces)
    running: Any = group.cut()
    assert list(zip(*(x.tolist() for x in running[:3]), strict=True)) == [
        (4 + i, sum(x), len(x)) for i, x in enumerate(seen) if x
    ]
    envs.close()
