"""Replay: what is drawn is what happened, seen from a twin that keeps whole episodes in Python lists."""

from __future__ import annotations

from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chisquare

from cramerl.deep import replay as replays
from cramerl.deep.envs.base import Step
from cramerl.deep.replay import FIRST, LAST, TERMINATED, HostFrames, Replay, empty_replay

GAMMA = 0.9
CAPACITY, ROWS, BATCH = 23, 90, 2000  # the ring is written nearly four times over
SHAPE, DTYPE = (3,), "uint8"


class Row(NamedTuple):
    """What one environment showed at one row, and what came of it."""

    frame: np.ndarray
    first: bool
    last: bool
    action: int
    reward: float
    terminated: bool


class Transition(NamedTuple):
    """As the twin makes it."""

    observation: np.ndarray
    action: int
    reward: float
    discount: float
    next_observation: np.ndarray


# Streams: environments that follow next-step autoreset, with frames that say where they are from.


def frame_of(row: int, env: int) -> np.ndarray:
    return np.array([1 + row % 250, row // 250, env], dtype=DTYPE)


def rows_of(frames: Any) -> tuple[np.ndarray, np.ndarray]:
    """(..., 3) newest frames -> their row and environment."""
    frames = np.asarray(frames).astype(int)
    return frames[..., 0] - 1 + 250 * frames[..., 1], frames[..., 2]


class RandomEnvs:
    """Episodes that end, are cut, or lose a life at random; ``chances`` are of these three in each step."""

    def __init__(self, num_envs: int, chances: tuple[float, float, float], seed: int):
        self.num_envs, self.row = num_envs, 0
        self._rng, self._chances = np.random.default_rng(seed), (*chances, 1 - sum(chances))
        self._over = np.zeros(num_envs, dtype=bool)

    def frames(self) -> np.ndarray:
        return np.stack([frame_of(self.row, env) for env in range(self.num_envs)])

    def step(self) -> Step:
        event = self._rng.choice(["end", "cut", "life", "on"], size=self.num_envs, p=self._chances)
        rewards = self._rng.normal(size=self.num_envs).astype(np.float32)
        over = self._over
        terminated = ~over & ((event == "end") | (event == "life"))
        ended = ~over & ((event == "end") | (event == "cut"))
        first = over | (event == "life")
        self._over, self.row = ended, self.row + 1
        return Step(self.frames(), np.where(over, np.float32(0), rewards), terminated, ended, first)


def stream(num_envs: int, num_rows: int, seed: int, chances: Any = (0.1, 0.1, 0.1)) -> list[list[Row]]:
    """[row][env], written down as the loops do."""
    envs, rng = RandomEnvs(num_envs, chances, seed), np.random.default_rng(seed + 1000)
    frames, first, last = envs.frames(), np.ones(num_envs, dtype=bool), np.zeros(num_envs, dtype=bool)
    rows = []
    for _ in range(num_rows):
        actions = rng.integers(0, 5, num_envs)
        step = envs.step()
        columns = (frames, first, last, actions, step.rewards, step.terminated)
        rows.append([Row(*values) for values in zip(*columns, strict=True)])
        frames, first, last = step.frames, step.first, step.ended
    return rows


# The twin.


def lives(rows: list[Row]) -> list[list[int]]:
    """Rows of one environment, cut where a life begins."""
    parts: list[list[int]] = []
    for i, row in enumerate(rows):
        if row.first:
            parts.append([])
        parts[-1].append(i)
    return parts


def twin(rows: list[Row], stack: int, n_step: int) -> dict[int, Transition]:
    """Every transition of one environment, by row; those at the end that are not whole are left out."""
    observations: list[np.ndarray] = []
    for life in lives(rows):
        seen = [np.zeros(SHAPE, dtype=DTYPE)] * (stack - 1)
        for i in life:
            seen.append(rows[i].frame)
            window = seen[len(seen) - stack :]
            observations.append(np.stack(window, axis=-1) if stack > 1 else window[0])
    whole = {}
    for life in lives(rows):
        for start in life:
            if rows[start].last:
                continue
            total, steps, over = 0.0, 0, False
            while steps < n_step and not over:
                row = rows[start + steps] if start + steps < len(rows) else None
                if row is None or row.last:
                    break
                total += GAMMA**steps * row.reward
                steps, over = steps + 1, row.terminated
            if start + n_step < len(rows):
                discount = 0.0 if over else GAMMA**steps
                following = observations[start + steps]
                whole[start] = Transition(observations[start], rows[start].action, total, discount, following)
    return whole


class Table(NamedTuple):
    """The twin's transitions of all environments as arrays (rows, envs, ...), and which of them exist."""

    values: Any
    exists: np.ndarray


def table_of(rows: list[list[Row]], stack: int, n_step: int) -> Table:
    num_envs = len(rows[0])
    by_env = [twin([row[env] for row in rows], stack, n_step) for env in range(num_envs)]
    observation = (*SHAPE, stack) if stack > 1 else SHAPE
    nothing = Transition(np.zeros(observation, dtype=DTYPE), -1, np.nan, np.nan, np.zeros(observation, dtype=DTYPE))
    grid = [[by_env[env].get(i, nothing) for env in range(num_envs)] for i in range(len(rows))]
    columns = Transition(*(np.array([[getattr(t, f) for t in line] for line in grid]) for f in Transition._fields))
    return Table(columns, np.array([[i in by_env[env] for env in range(num_envs)] for i in range(len(rows))]))


# The ring.


@partial(jax.jit, donate_argnums=0)
def begin(replay: Replay, row: Any, frames: Any, first: Any, last: Any) -> Replay:
    return replays.begin_row(replay, row, frames, first, last)


@partial(jax.jit, donate_argnums=0)
def finish(replay: Replay, row: Any, actions: Any, rewards: Any, terminated: Any) -> Replay:
    return replays.finish_row(replay, row, actions, rewards, terminated)


def begin_arrays(line: list[Row]) -> tuple[np.ndarray, ...]:
    columns = list(zip(*line, strict=True))
    return np.stack(columns[0]), np.array(columns[1]), np.array(columns[2])


def finish_arrays(line: list[Row]) -> tuple[np.ndarray, ...]:
    columns = list(zip(*line, strict=True))
    return np.array(columns[3], dtype=np.int32), np.array(columns[4], dtype=np.float32), np.array(columns[5])


def arrays_of(rows: list[list[Row]]) -> Any:
    """What is seen and what is done, as arrays (rows, envs, ...)."""
    parts = [(begin_arrays(line), finish_arrays(line)) for line in rows]
    return jax.tree.map(lambda *lines: np.stack(lines), *parts)


@partial(jax.jit, donate_argnums=0)
def write(replay: Replay, arrays: Any, start: Any, stop: Any) -> Replay:
    def body(row: Any, replay: Replay) -> Replay:
        seen, done = jax.tree.map(lambda x: x[row], arrays)
        return replays.finish_row(replays.begin_row(replay, row, *seen), row, *done)

    return jax.lax.fori_loop(start, stop, body, replay)


def filled(rows: list[list[Row]], stop: int | None = None) -> Replay:
    stop = len(rows) if stop is None else stop
    return write(empty_replay(CAPACITY, len(rows[0]), SHAPE, DTYPE), arrays_of(rows), 0, stop)


@cache
def sampler(stack: int, n_step: int, q_lambda: float = 0.0, greedy: float = 1.0) -> Any:
    options = {"stack": stack, "n_step": n_step, "discount": GAMMA, "q_lambda": q_lambda, "q_lambda_greedy": greedy}

    def sample(key: Any, replay: Replay, written: Any, newer_rows: Any) -> Any:
        drawn = replays.draw(key, replay, written, (BATCH,), **options, newer_rows=newer_rows)
        return drawn, replays.read_batch(replay, drawn)

    return jax.jit(sample)


def sampled_rows(batch: Any, stack: int) -> tuple[np.ndarray, np.ndarray]:
    newest = batch.observations[..., -1] if stack > 1 else batch.observations
    return rows_of(newest)


def check(batch: Any, table: Table, legal: np.ndarray, stack: int) -> None:
    """Every entry that counts is a legal transition of the twin, number for number."""
    counts = np.asarray(batch.weights) == 1
    assert np.all(counts | (np.asarray(batch.weights) == 0))
    row, env = (a[counts] for a in sampled_rows(batch, stack))
    assert legal[row, env].all()
    expected = Transition(*(column[row, env] for column in table.values))
    np.testing.assert_array_equal(np.asarray(batch.observations)[counts], expected.observation)
    np.testing.assert_array_equal(np.asarray(batch.next_observations)[counts], expected.next_observation)
    np.testing.assert_array_equal(np.asarray(batch.actions)[counts], expected.action)
    np.testing.assert_allclose(np.asarray(batch.rewards)[counts], expected.reward, rtol=0, atol=1e-6)
    np.testing.assert_allclose(np.asarray(batch.discounts)[counts], expected.discount, rtol=1e-6, atol=0)


def legal_rows(table: Table, written: int, newer: int, stack: int, n_step: int, capacity: int) -> np.ndarray:
    """Transitions whose frames are all among the rows below ``written`` that are not overwritten yet."""
    row = np.arange(len(table.exists))
    oldest = max(0, written + newer - capacity)
    kept = (row >= oldest) & ((row - stack + 1 >= oldest) | (oldest == 0)) & (row + n_step <= written - 1)
    return table.exists & kept[:, None]


SETTINGS = [(n, stack, n_step) for n in (1, 3) for stack in (1, 4) for n_step in (1, 3)]


@pytest.mark.parametrize(("num_envs", "stack", "n_step"), SETTINGS)
@pytest.mark.parametrize("seed", range(8))
def test_the_ring_gives_what_the_twin_gives(num_envs, stack, n_step, seed):
    rows = stream(num_envs, ROWS, seed)
    arrays = arrays_of(rows)
    table = table_of(rows, stack, n_step)
    sample, rng = sampler(stack, n_step), np.random.default_rng(seed)
    replay, written = empty_replay(CAPACITY, num_envs, SHAPE, DTYPE), 0
    while written + 10 < ROWS:
        replay = write(replay, arrays, written, written := written + int(rng.integers(n_step + 1, 7)))
        # Rows may come after those that are drawn from; the last of them may be begun only.
        newer = int(rng.integers(1, 5))
        ahead = write(jax.tree.map(jnp.copy, replay), arrays, written, written + newer - 1)
        if rng.random() < 0.5:
            ahead = begin(ahead, np.int32(written + newer - 1), *begin_arrays(rows[written + newer - 1]))
        _, batch = sample(jax.random.key(100 * seed + written), ahead, np.int32(written), np.int32(newer))
        legal = legal_rows(table, written, newer, stack, n_step, CAPACITY)
        assert legal.any()
        check(batch, table, legal, stack)
    assert written > 3 * CAPACITY


@pytest.mark.parametrize(("num_envs", "stack", "n_step"), SETTINGS)
def test_every_legal_row_is_drawn_equally_often(num_envs, stack, n_step):
    rows = stream(num_envs, 61, seed=3)
    replay, table = filled(rows), table_of(rows, stack, n_step)
    legal = legal_rows(table, 61, 1, stack, n_step, CAPACITY)
    counts = np.zeros(legal.shape, dtype=int)
    for seed in range(10):
        _, batch = sampler(stack, n_step)(jax.random.key(seed), replay, np.int32(61), np.int32(1))
        check(batch, table, legal, stack)
        np.add.at(counts, sampled_rows(batch, stack), np.asarray(batch.weights).astype(int))
    assert set(zip(*np.nonzero(counts), strict=True)) == set(zip(*np.nonzero(legal), strict=True))
    assert chisquare(counts[legal]).pvalue > 1e-3
    newest, oldest = np.nonzero(legal)[0].max(), np.nonzero(legal)[0].min()
    assert newest <= 61 - 1 - n_step  # the frame n steps on is there
    assert oldest >= 61 + 1 - CAPACITY + stack - 1  # one row more may have been begun


@pytest.mark.parametrize(("stack", "n_step"), [(1, 1), (4, 1), (1, 3), (4, 3)])
def test_the_newest_transition_waits_for_its_next_frame(stack, n_step):
    rows = stream(1, 12, seed=0, chances=(0, 0, 0))
    for written in range(n_step + 1, 12):
        replay = filled(rows, written)
        _, batch = sampler(stack, n_step)(jax.random.key(written), replay, np.int32(written), np.int32(1))
        row, _ = sampled_rows(batch, stack)
        assert set(row) == set(range(written - n_step))
        newest = batch.next_observations[..., -1] if stack > 1 else batch.next_observations
        np.testing.assert_array_equal(rows_of(newest)[0], row + n_step)


def coefficients_of(rows: list[Row], start: int, n_step: int, written: int, lamda: float, greedy: float) -> Any:
    """Of Q(lambda), from the rows of one environment: (n, 2), the best action's and that of the action taken."""
    found = np.zeros((n_step, 2))
    for step in range(n_step):
        here, following = rows[start + step], rows[start + step + 1]
        over = here.terminated or following.last
        taken = 0.0 if over or start + step + 1 >= written - 1 else 1 - greedy
        found[step] = lamda**step * np.array([1 - taken, taken])
        if over:
            break
        if step + 1 < n_step:
            found[step, 1] -= lamda ** (step + 1)
    return found


@pytest.mark.parametrize(("num_envs", "stack"), [(1, 1), (3, 4)])
def test_q_lambda_sees_every_step_on_the_way(num_envs, stack):
    """The same transitions as without it; after each step, what a transition of so many steps has."""
    n_step, lamda, greedy, newest = 3, 0.5, 0.75, 0
    rows = stream(num_envs, ROWS, seed=4)
    tables = [table_of(rows, stack, steps).values for steps in range(1, n_step + 1)]
    for written in (12, 40, 85):
        given = jax.random.key(written), filled(rows, written + 2), np.int32(written), np.int32(3)
        plain, batch = sampler(stack, n_step)(*given)[1], sampler(stack, n_step, lamda, greedy)(*given)[1]
        np.testing.assert_array_equal(plain.observations, batch.observations)
        np.testing.assert_array_equal(plain.actions, batch.actions)
        np.testing.assert_array_equal(plain.weights, batch.weights)
        np.testing.assert_array_equal(plain.rewards, batch.rewards[:, -1])
        np.testing.assert_array_equal(plain.discounts, batch.discounts[:, -1])
        counts = np.asarray(batch.weights) == 1
        row, env = (a[counts] for a in sampled_rows(batch, stack))
        batch = jax.tree.map(lambda x, counts=counts: np.asarray(x)[counts], batch)
        for step, table in enumerate(tables):
            np.testing.assert_allclose(batch.rewards[:, step], table.reward[row, env], rtol=0, atol=1e-6)
            np.testing.assert_allclose(batch.discounts[:, step], table.discount[row, env], rtol=1e-6, atol=0)
            np.testing.assert_array_equal(batch.next_observations[:, step], table.next_observation[row, env])
        for i in np.unique(num_envs * row + env, return_index=True)[1]:
            column = [line[env[i]] for line in rows]
            expected = coefficients_of(column, row[i], n_step, written, lamda, greedy)
            np.testing.assert_allclose(batch.terms.coefficients[i], expected, rtol=0, atol=1e-6)
            assert expected.sum() == pytest.approx(1)
            for step in np.flatnonzero(expected[:, 1]):
                assert batch.terms.actions[i, step] == column[row[i] + step + 1].action
            newest += expected[-1, 1] == 0 < expected[-1, 0] and not column[row[i] + n_step].last
    assert newest > 0  # some end at the newest row, whose action is not used


def by_hand(last: bool, first: bool, terminated: bool) -> list[list[Row]]:
    """Rows 0 to 4, an end of some kind after the third transition, and rows of what comes then."""
    flags = [(True, False), (False, False), (False, False), (first, last), (last, False)]
    flags += [(False, False)] * 4
    return [
        [Row(frame_of(i, 0), f, la, i, 10.0**-i if not la else 0.0, terminated and i == 2)]
        for i, (f, la) in enumerate(flags)
    ]


@pytest.mark.parametrize("kind", ["terminated", "truncated", "life"])
@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("stack", [1, 4])
def test_ends_by_hand(kind, n_step, stack):
    # Rewards are 1, .1 and .01 before the end that comes with the third; frames are numbered by row.
    rows = by_hand(last=kind != "life", first=kind == "life", terminated=kind != "truncated")
    _, batch = sampler(stack, n_step)(jax.random.key(0), filled(rows), np.int32(len(rows)), np.int32(1))
    batch = jax.tree.map(np.asarray, batch)
    row, _ = sampled_rows(batch, stack)
    newest = batch.next_observations[..., -1] if stack > 1 else batch.next_observations
    found = {
        r: (float(batch.rewards[i]), float(batch.discounts[i]), int(rows_of(newest[i])[0])) for i, r in enumerate(row)
    }
    after = 0.0 if kind != "truncated" else 1.0
    for start in range(3):
        steps = min(n_step, 3 - start)
        total = sum(GAMMA**k * 10.0 ** -(start + k) for k in range(steps))
        discount = GAMMA**steps * (after if start + steps == 3 else 1.0)
        assert found[start] == pytest.approx((total, discount, start + steps))
    if kind == "life":
        assert 3 in found  # the first frame of the next life is a transition
    else:
        assert 3 not in found
    if stack == 4:
        past = {r: np.asarray(batch.observations[i])[0].tolist() for i, r in enumerate(row)}
        assert past[2] == [0, 1, 2, 3]
        restart = 3 if kind == "life" else 4
        assert past[restart] == [0, 0, 0, restart + 1]
        assert past[restart + 1] == [0, 0, restart + 1, restart + 2]


def test_entries_do_not_count_only_where_all_tries_failed():
    # Episodes of one step: half of all rows are last ones, so of eight tries all fail once in 2**8.
    rows = stream(3, 60, seed=0, chances=(1, 0, 0))
    replay = filled(rows)
    assert 0.4 < np.mean((np.asarray(replay.flags) & LAST) != 0) < 0.6
    last = np.array([[r.last for r in line] for line in rows])
    low, high, failures, runs = 60 + 1 - CAPACITY, 60 - 1, 0, 25
    for seed in range(runs):
        _, batch = sampler(1, 1)(jax.random.key(seed), replay, np.int32(60), np.int32(1))
        is_last = last[sampled_rows(batch, 1)]
        np.testing.assert_array_equal(batch.weights, np.where(is_last, 0.0, 1.0))
        assert np.all(np.asarray(batch.discounts)[~is_last] == 0)
        # Every one of the tries, drawn again.
        tried = np.asarray(jax.random.randint(jax.random.key(seed), (8, BATCH), 3 * low, 3 * high))
        np.testing.assert_array_equal(is_last, last[tried // 3, tried % 3].all(axis=0))
        failures += is_last.sum()
    expected = runs * BATCH * last[low:high].mean() ** 8
    assert abs(failures - expected) < 4 * np.sqrt(expected)


@pytest.mark.parametrize("stack", [1, 4])
def test_frames_on_the_host_give_the_same_observations(stack):
    rows = stream(3, 70, seed=5)
    device = filled(rows)
    elsewhere = empty_replay(CAPACITY, 3, (0,), DTYPE)
    host = HostFrames(CAPACITY, 3, SHAPE, DTYPE)
    for i, line in enumerate(rows):
        host.write(i, np.stack([row.frame for row in line]))
    elsewhere = write(elsewhere, arrays_of(rows), 0, 70)
    assert elsewhere.frames.shape == (CAPACITY, 3, 0)
    key, written = jax.random.key(2), np.int32(70)
    _, expected = sampler(stack, 3)(key, device, written, np.int32(1))
    drawn, _ = sampler(stack, 3)(key, elsewhere, written, np.int32(1))

    def observations(window: replays.Window) -> Any:
        frames = host.read(window.slots, window.envs)
        assert frames.shape == (BATCH, stack, *SHAPE)
        if window.keep is None:
            return frames[:, 0]
        return replays.stack_frames(jnp.asarray(frames), window.keep)

    np.testing.assert_array_equal(observations(drawn.window), expected.observations)
    np.testing.assert_array_equal(observations(drawn.next_window), expected.next_observations)
    for name in ("actions", "rewards", "discounts", "weights"):
        np.testing.assert_array_equal(getattr(drawn, name), getattr(expected, name))


def test_what_the_agent_sees_is_what_is_sampled_later():
    # The loops stack the newest frames by the same windows before the row is finished.
    rows = stream(3, 50, seed=6)
    tables = table_of(rows, 4, 1)

    @jax.jit
    def look(replay: Replay, row: Any) -> Any:
        return replays.read_observations(replay, replays.observation_window(replay, row, jnp.arange(3), stack=4))

    replay = empty_replay(CAPACITY, 3, SHAPE, DTYPE)
    for i in range(49):
        replay = begin(replay, np.int32(i), *begin_arrays(rows[i]))
        seen = look(replay, jnp.full(3, i))
        exists = tables.exists[i]
        np.testing.assert_array_equal(np.asarray(seen)[exists], tables.values.observation[i][exists])
        replay = finish(replay, np.int32(i), *finish_arrays(rows[i]))


def test_writing_a_row_keeps_the_others():
    rows = stream(3, 90, seed=7)
    replay = empty_replay(CAPACITY, 3, SHAPE, DTYPE)
    for i, line in enumerate(rows):
        before = jax.tree.map(np.array, replay)
        given = replay
        replay = begin(replay, np.int32(i), *begin_arrays(line))
        assert given.frames.is_deleted()  # the buffer was taken over, not copied
        begun = jax.tree.map(np.array, replay)
        replay = finish(replay, np.int32(i), *finish_arrays(line))
        after, slot = jax.tree.map(np.array, replay), i % CAPACITY
        others = np.arange(CAPACITY) != slot
        for old, middle, new in zip(before, begun, after, strict=True):
            np.testing.assert_array_equal(middle[others], old[others])
            np.testing.assert_array_equal(new[others], old[others])
        np.testing.assert_array_equal(after.frames[slot], [row.frame for row in line])
        np.testing.assert_array_equal(after.actions[slot], [row.action for row in line])
        np.testing.assert_array_equal(after.rewards[slot], [row.reward for row in line])
        flags = [FIRST * row.first + LAST * row.last for row in line]
        np.testing.assert_array_equal(begun.flags[slot], flags)
        flags = [f + TERMINATED * row.terminated for f, row in zip(flags, line, strict=True)]
        np.testing.assert_array_equal(after.flags[slot], flags)


def test_lanes_are_separate_rings():
    streams = [stream(3, 40, seed) for seed in (8, 9, 10)]
    apart = [filled(rows) for rows in streams]
    lanes: Any = jax.tree.map(lambda *x: jnp.stack(x), *(empty_replay(CAPACITY, 3, SHAPE, DTYPE) for _ in streams))
    begin_all = jax.jit(jax.vmap(replays.begin_row, in_axes=(0, None, 0, 0, 0)), donate_argnums=0)
    finish_all = jax.jit(jax.vmap(replays.finish_row, in_axes=(0, None, 0, 0, 0)), donate_argnums=0)
    for i in range(40):
        shown = [begin_arrays(rows[i]) for rows in streams]
        done = [finish_arrays(rows[i]) for rows in streams]
        lanes = begin_all(lanes, np.int32(i), *(np.stack(x) for x in zip(*shown, strict=True)))
        lanes = finish_all(lanes, np.int32(i), *(np.stack(x) for x in zip(*done, strict=True)))
    keys = jax.random.split(jax.random.key(3), 3)
    sample = sampler(4, 3)
    together = jax.vmap(sample, in_axes=(0, 0, None, None))(keys, lanes, np.int32(40), np.int32(2))
    for lane, replay in enumerate(apart):
        alone = sample(keys[lane], replay, np.int32(40), np.int32(2))
        for x, y in zip(jax.tree.leaves((replay, alone)), jax.tree.leaves((lanes, together)), strict=True):
            np.testing.assert_array_equal(x, y[lane])
