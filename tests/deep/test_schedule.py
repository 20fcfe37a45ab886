"""Schedules: the ratio of updates to steps is exact, and the plan does not depend on how a run is cut."""

from __future__ import annotations

from itertools import pairwise

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cramerl.deep.schedule import Schedule

SCHEDULES = st.builds(
    Schedule,
    num_envs=st.integers(1, 300),
    update_period_steps=st.integers(1, 300),
    min_replay_steps=st.integers(0, 3000),
    replay_steps=st.integers(1, 10_000),
    target_period_steps=st.integers(1, 5000),
    n_step=st.integers(1, 5),
)
# Few steps a block: some hundred blocks are a long run.
SMALL = st.builds(
    Schedule,
    num_envs=st.integers(1, 12),
    update_period_steps=st.integers(1, 12),
    min_replay_steps=st.integers(0, 300),
    target_period_steps=st.integers(1, 400),
    n_step=st.integers(1, 5),
)


@given(SCHEDULES)
def test_the_ratio_of_updates_to_steps_is_kept(schedule):
    assert schedule.steps_per_block == schedule.rows_per_block * schedule.num_envs
    assert schedule.updates_per_block * schedule.update_period_steps == schedule.rows_per_block * schedule.num_envs
    assert min(schedule.updates_per_block, schedule.rows_per_block) >= 1


@given(SCHEDULES)
def test_a_block_is_the_smallest_that_keeps_it(schedule):
    for rows in range(1, schedule.rows_per_block):
        assert rows * schedule.num_envs % schedule.update_period_steps != 0


@pytest.mark.parametrize(
    ("num_envs", "period", "rows", "updates"),
    [(1, 4, 4, 1), (4, 4, 1, 1), (8, 4, 1, 2), (128, 4, 1, 32), (6, 4, 2, 3), (3, 4, 4, 3), (5, 1, 1, 5)],
)
def test_blocks_by_hand(num_envs, period, rows, updates):
    schedule = Schedule(num_envs, update_period_steps=period)
    assert (schedule.rows_per_block, schedule.updates_per_block) == (rows, updates)


@given(SCHEDULES, st.integers(0, 10**7))
def test_blocks_make_at_least_the_steps_asked_for(schedule, steps):
    blocks = schedule.blocks(steps)
    assert (blocks - 1) * schedule.steps_per_block < steps <= blocks * schedule.steps_per_block or steps == blocks == 0


@given(SCHEDULES)
def test_the_first_learning_block_has_enough_to_learn_from(schedule):
    first = schedule.first_learning_block
    rows = first * schedule.rows_per_block

    def enough(block: int) -> bool:
        steps = block * schedule.steps_per_block
        return steps >= max(schedule.min_replay_steps, (schedule.n_step + 1) * schedule.num_envs)

    assert enough(first)
    assert not enough(first - 1)
    assert rows - schedule.n_step >= 1  # one row that can be drawn at least
    # However full the ring is, while the newest block is being written, something can be drawn with a stack of four.
    stack = 4
    oldest = max(0, rows + schedule.rows_per_block + stack - 1 - schedule.replay_rows)
    assert oldest < rows - schedule.n_step
    assert schedule.replay_rows > schedule.rows_per_block + stack - 1 + schedule.n_step


@given(SCHEDULES)
def test_the_replay_remembers_what_was_asked_for(schedule):
    rows = schedule.replay_rows
    assert rows >= schedule.replay_steps // schedule.num_envs
    assert rows >= 3 * schedule.rows_per_block
    if schedule.replay_steps // schedule.num_envs >= 3 * schedule.rows_per_block + schedule.n_step + 8:
        assert rows * schedule.num_envs <= schedule.replay_steps < (rows + 1) * schedule.num_envs


@given(SMALL, st.integers(0, 60), st.integers(1, 120))
def test_segments_tile_the_range(schedule, start, length):
    stop = start + length
    segments = schedule.segments(start, stop)
    assert segments[0][0] == start
    assert segments[-1][1] == stop
    for before, after in pairwise(segments):
        assert before.stop == after.start
    assert all(segment.start < segment.stop for segment in segments)
    cuts = {segment.start for segment in segments} - {start}
    expected = {b for b in range(start + 1, stop) if schedule.changes_target(b) or b == schedule.first_learning_block}
    assert cuts == expected
    for a, b, learns, starts_learning, changes_target in segments:
        assert changes_target == schedule.changes_target(a)
        assert starts_learning == (a == schedule.first_learning_block)
        assert all((block >= schedule.first_learning_block) == learns for block in range(a, b))
        assert not any(schedule.changes_target(block) for block in range(a + 1, b))


def plan(schedule: Schedule, cuts: list[int]) -> tuple[dict[int, bool], list[int]]:
    """Whether each block learns, and the blocks before which the target is renewed."""
    segments = [s for a, b in pairwise(cuts) for s in schedule.segments(a, b)]
    learning = {block: one.learns for one in segments for block in range(one.start, one.stop)}
    return learning, [segment.start for segment in segments if segment.changes_target]


@given(SMALL, st.sets(st.integers(1, 150), max_size=10))
def test_the_plan_does_not_depend_on_the_cuts(schedule, inner):
    assert plan(schedule, [0, *sorted(inner), 151]) == plan(schedule, [0, 151])


@given(SMALL, st.integers(1, 300))
def test_the_number_of_target_renewals(schedule, blocks):
    # Before the first block the target network is a copy anyway; renewals count from the second on.
    _, renewals = plan(schedule, [1, blocks + 1])
    steps = blocks * schedule.steps_per_block
    if schedule.steps_per_block <= schedule.target_period_steps:
        assert len(renewals) == steps // schedule.target_period_steps
        for i, block in enumerate(renewals, start=1):  # each as soon as its time has come
            due = i * schedule.target_period_steps
            assert due <= block * schedule.steps_per_block < due + schedule.steps_per_block
    else:
        assert len(renewals) == blocks  # no block can do more than one


def test_segments_by_hand():
    # Blocks of 4 steps: learning from 40 steps = block 10 on, targets at 32, 64, 96 steps = blocks 8, 16, 24.
    schedule = Schedule(2, update_period_steps=4, min_replay_steps=38, target_period_steps=32)
    assert schedule.segments(1, 26) == [
        (1, 8, False, False, False),
        (8, 10, False, False, True),
        (10, 16, True, True, False),
        (16, 24, True, False, True),
        (24, 26, True, False, True),
    ]
    assert schedule.segments(10, 11) == [(10, 11, True, True, False)]
    assert schedule.segments(11, 12) == [(11, 12, True, False, False)]


def test_exploration_by_hand():
    schedule = Schedule(1, min_replay_steps=1000, exploration_final=0.1, exploration_decay_steps=2000)
    steps = jnp.array([0, 1, 999, 1000, 1200, 1500, 2000, 2500, 2999, 3000, 3001, 2_000_000_000], dtype=jnp.int32)
    expected = [1, 1, 1, 1, 0.91, 0.775, 0.55, 0.325, 0.10045, 0.1, 0.1, 0.1]
    np.testing.assert_allclose(schedule.exploration(steps), expected, rtol=0, atol=1e-6)
    assert schedule.exploration(jnp.int32(1500)).shape == ()


def test_exploration_without_a_decay_falls_at_once():
    schedule = Schedule(1, min_replay_steps=10, exploration_final=0.05, exploration_decay_steps=0)
    np.testing.assert_allclose(schedule.exploration(jnp.array([0, 10, 11, 12])), [1, 1, 0.05, 0.05], rtol=1e-6)


@given(
    st.integers(0, 10**5),
    st.integers(1, 10**6),
    st.floats(0, 1, width=32),
    st.lists(st.integers(0, 2 * 10**6), min_size=1, max_size=5),
)
def test_exploration_is_a_line_between_two_levels(least, decay, final, steps):
    schedule = Schedule(1, min_replay_steps=least, exploration_final=final, exploration_decay_steps=decay)
    found = schedule.exploration(jnp.array(steps, dtype=jnp.int32))
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, np.interp(steps, [least, least + decay], [1, final]), rtol=0, atol=1e-6)


# Subnormal numbers are zero to XLA.
@given(st.lists(st.floats(-1e6, 1e6, width=32, allow_subnormal=False), min_size=1, max_size=8))
def test_rewards_are_clipped_for_the_learner(rewards):
    given_rewards = jnp.array(rewards, dtype=jnp.float32)
    np.testing.assert_array_equal(Schedule(1).learner_rewards(given_rewards), given_rewards)
    clipped = Schedule(1, clip_rewards=True).learner_rewards(given_rewards)
    assert clipped.dtype == jnp.float32
    np.testing.assert_array_equal(clipped, [min(1.0, max(-1.0, r)) for r in np.asarray(given_rewards)])
