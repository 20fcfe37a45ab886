"""How the work is spread (groups of environments, a thread that launches updates) does not change what is computed."""

from __future__ import annotations

import time
from typing import Any

import jax
import numpy as np
import pytest
from lenient import lenient

from cramerl.deep.env_group import EnvGroup
from cramerl.deep.envs.atari import AtariEnvs
from cramerl.deep.host_loop import HostLoop
from cramerl.deep.replay import HostFrames
from cramerl.deep.schedule import Schedule
from cramerl.runs import build
from cramerl.runs.presets import preset

pytestmark = pytest.mark.usefixtures("whole_process_lenient")
CONFIG = preset("smoke", "s51", "pong", network="mlp", hidden_units=(4,), num_atoms=5, num_envs=4, batch_size=4)
# With Q(lambda) updates also read the actions of the newest rows, which not all groups have written yet.
SCHEDULE = Schedule(
    num_envs=4,
    update_period_steps=1,
    batch_size=4,
    min_replay_steps=40,
    replay_steps=200,
    target_period_steps=24,
    n_step=2,
    q_lambda=0.7,
    q_lambda_greedy=0.6,
)


@pytest.fixture(name="whole_process_lenient")
def fixture_whole_process_lenient() -> Any:
    """As `lenient`, for threads too: the context managers speak for one thread only."""
    wanted = {"jax_numpy_dtype_promotion": "standard", "jax_numpy_rank_promotion": "allow"}
    before = {name: getattr(jax.config, name) for name in wanted}
    for name, value in wanted.items():
        jax.config.update(name, value)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


def make(groups: int, *, thread: bool, on_host: bool = False, updates: int = 0) -> HostLoop:
    size = 4 // groups
    envs = [AtariEnvs("pong", size, sticky=0.25, noop_max=5, skip=i * size) for i in range(groups)]
    learner = build.make_learner(CONFIG, envs[0].spec)
    updates = updates or 4 // groups  # as on an accelerator: each group launches its part
    return HostLoop(
        envs, learner, SCHEDULE, seed=3, frames_on_host=on_host, launch_in_thread=thread, updates_per_call=updates
    )


def run(loop: HostLoop, blocks: list[int]) -> dict[str, Any]:
    """Two iterations and a part of a third, in pieces."""
    loop.begin_iteration(0)
    for i, some in enumerate(blocks):
        loop.advance(some)
        loop.end_iteration()
        loop.begin_iteration(i + 1)
    loop.advance(3)
    loop.save()
    found = {
        "rows": loop.read_rows(0, loop.row),
        "weights": jax.tree.map(np.asarray, loop.params),
        "totals": loop.peek_totals(),
    }
    loop.close()
    return found


@pytest.fixture(scope="module", name="plain")
def fixture_plain() -> dict[str, Any]:
    with lenient():
        return run(make(1, thread=False), [20, 11])


@pytest.mark.parametrize(
    ("groups", "thread", "on_host"),
    [
        (1, True, False),
        pytest.param(2, False, False, marks=pytest.mark.slow),
        (2, True, True),
        pytest.param(4, True, False, marks=pytest.mark.slow),
    ],
)
def test_the_spread_of_the_work_changes_nothing(plain, groups, thread, on_host):
    other = run(make(groups, thread=thread, on_host=on_host), [20, 11])
    for name, rows in plain["rows"].items():
        np.testing.assert_array_equal(rows, other["rows"][name], err_msg=name)
    for a, b in zip(jax.tree.leaves(plain["weights"]), jax.tree.leaves(other["weights"]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    (before,), (after,) = plain["totals"], other["totals"]
    assert before.episodes == after.episodes
    assert after.blocks == groups * before.blocks > 0  # sums of each group's share of the updates
    np.testing.assert_allclose(after.info.loss / after.blocks, before.info.loss / before.blocks, rtol=1e-4)


def test_timing_the_updates_changes_nothing(plain):
    loop = make(1, thread=False)
    advance = loop.advance

    def timed(num_blocks: int, stop: Any = None) -> int:
        first = advance(5) if num_blocks > 5 else 0
        assert loop.time_updates() > 0  # before the first update, and between updates
        return first + advance(num_blocks - first, stop)

    loop.advance = timed
    other = run(loop, [20, 11])
    for a, b in zip(jax.tree.leaves(plain), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)


def test_frames_on_the_host_are_not_overwritten_before_they_are_read(monkeypatch):
    """Four rows a block and a full ring: a block replaces frames that its updates read, slowly, in a thread."""
    read = HostFrames.read

    def read_slowly(self: HostFrames, slots: Any, envs: Any) -> np.ndarray:
        time.sleep(0.003)
        return read(self, slots, envs)

    monkeypatch.setattr(HostFrames, "read", read_slowly)
    config = preset("smoke", "dqn", "gym:CartPole-v1", hidden_units=(4,), num_envs=1, batch_size=16)
    schedule = Schedule(1, update_period_steps=4, batch_size=16, min_replay_steps=20, replay_steps=21)
    weights = []
    for thread in (False, True):
        envs = build.make_envs(config, 1)
        learner = build.make_learner(config, envs.spec)
        loop = HostLoop(envs, learner, schedule, seed=3, frames_on_host=True, launch_in_thread=thread)
        loop.begin_iteration(0)
        loop.advance(40)
        weights.append(jax.tree.map(np.asarray, loop.params))
        loop.close()
    for a, b in zip(*map(jax.tree.leaves, weights), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("thread", [pytest.param(False, marks=pytest.mark.slow), True])
def test_groups_go_on_from_the_middle_of_an_iteration(thread):
    whole = make(2, thread=thread)
    whole.begin_iteration(0)
    whole.advance(14)
    saved, counters, rows = jax.tree.map(np.array, whole.save()), whole.counters, whole.read_rows(0, whole.row)
    again = make(2, thread=thread)
    again.write_rows(0, rows)
    again.load(saved, counters)
    for loop in (whole, again):
        loop.advance(9)
        loop.save()
    for name, values in whole.read_rows(0, whole.row).items():
        np.testing.assert_array_equal(values, again.read_rows(0, again.row)[name], err_msg=name)
    for a, b in zip(jax.tree.leaves(whole.params), jax.tree.leaves(again.params), strict=True):
        np.testing.assert_array_equal(a, b)
    whole.close()
    again.close()


@pytest.mark.parametrize(("updates", "calls"), [(1, [[0, 1], [2, 3]]), (4, [[], [0]])])
def test_updates_are_divided_among_groups(updates, calls):
    loop = make(2, thread=False, updates=updates)
    assert [list(loop._updates_after(group)) for group in loop.groups] == calls
    loop.close()


def test_what_stops_a_step_is_heard():
    loop = make(2, thread=True)
    loop.begin_iteration(0)
    loop.groups[1].envs.close()
    with pytest.raises(ValueError, match="these environments were closed"):
        loop.advance(2)
    loop.close()


@pytest.mark.parametrize("in_thread", [False, True])
def test_a_group_counts_episodes_and_begins_each_anew(in_thread):
    group = EnvGroup(AtariEnvs("pong", 2, max_episode_frames=40), 0, in_thread=in_thread)
    group.reset(0)
    finished = []
    for _ in range(24):  # ten steps and one for the restart
        group.start(np.zeros(2, np.int32))
        finished.append(group.finish())
    group.close()
    assert [i for i, ended in enumerate(finished) if ended] == [9, 20]
    for ended in (finished[9], finished[20]):
        assert [x.tolist() for x in ended] == [[0, 1], [0.0, 0.0], [10, 10], [0.0, 0.0]]
