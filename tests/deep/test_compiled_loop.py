"""The compiled loop, against the same blocks written out in Python: what it stores, learns, counts and compiles."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cramerl.deep import replay as replays
from cramerl.deep.compiled_loop import CompiledLoop
from cramerl.deep.envs.gymnax import GymnaxEnv
from cramerl.deep.heads import make_head
from cramerl.deep.learner import Learner, make_optimiser
from cramerl.deep.networks import make_network
from cramerl.deep.schedule import Schedule

FIRST, LAST, TERMINATED = 1, 2, 4
WEIGHTS, START, ACT, STEP, SAMPLE = range(5)  # the streams' numbers are part of what a checkpoint means

pytestmark = pytest.mark.usefixtures("lenient_jax")


def stream(seed, number, index=0):
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), number), index)


def parts(env="CartPole-v1", head="dqn", limit=12, rate=1e-2, **settings):
    """An environment, a learner and a schedule, all small. By itself a block is 8 steps in one row, and two updates."""
    native = GymnaxEnv(env, limit)
    distribution = make_head(head, num_atoms=5, v_min=0.0, v_max=10.0)
    shape = native.spec.observation_shape
    network = make_network("linear", shape, native.spec.num_actions, distribution.num_outputs)
    learner = Learner(distribution, network, make_optimiser("adam", 1e-5), rate)
    defaults = {"num_envs": 8, "batch_size": 4, "min_replay_steps": 40, "replay_steps": 10_000}
    defaults |= {"target_period_steps": 36, "exploration_decay_steps": 60, "exploration_final": 0.1, "discount": 0.9}
    return native, learner, Schedule(**(defaults | settings))


def loop_of(seeds=(0,), rates=None, penalties=None, **options):
    return CompiledLoop(*parts(**options), list(seeds), rates, penalties)


def copied(tree):
    """Out of buffers that the next block takes over."""
    return jax.tree.map(np.array, tree)


def close(ours, theirs, rtol=1e-4, atol=1e-5):
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


class Twin:
    """One lane in Python: plain lists for the ring, an update at a time, everything in the order it is told in docs."""

    def __init__(self, env, learner, schedule, seed):
        self.env, self.learner, self.schedule, self.seed = env, learner, schedule, seed
        n = self.n = schedule.num_envs
        self.env_step = jax.jit(jax.vmap(env.step))
        self.act = jax.jit(learner.act)
        self.state, frames = jax.jit(jax.vmap(env.reset))(jax.random.split(stream(seed, START), n))
        self.learned = learner.init(stream(seed, WEIGHTS))
        self.seen = np.asarray(frames), np.ones(n, bool), np.zeros(n, bool)
        self.rows, self.row, self.block = [], 0, 0
        self.returns, self.lengths, self.episodes = np.zeros(n), np.zeros(n, int), []
        self.sample = jax.jit(self._sample)
        self.update = jax.jit(lambda s, b: learner.update(s, b, learner.targets(s, b)[0])[0])

    def epsilon(self, step):
        s = self.schedule
        part = min(max((step - s.min_replay_steps) / s.exploration_decay_steps, 0.0), 1.0)
        return 1.0 + part * (s.exploration_final - 1.0)

    def _sample(self, key, ring, written):
        s = self.schedule
        shape = (s.updates_per_block, s.batch_size)
        options = {"stack": 1, "n_step": s.n_step, "discount": s.discount, "newer_rows": s.rows_per_block}
        options |= {"q_lambda": s.q_lambda, "q_lambda_greedy": s.q_lambda_greedy}
        return replays.read_batch(ring, replays.draw(key, ring, written, shape, **options))

    def run_block(self):
        s, steps = self.schedule, self.block * self.schedule.steps_per_block
        params = self.learned.params
        if self.block and steps // s.target_period_steps > (steps - s.steps_per_block) // s.target_period_steps:
            self.learned = self.learned._replace(target_params=params)
        if steps >= s.min_replay_steps:
            batches = self.sample(stream(self.seed, SAMPLE, self.block), self.ring(), jnp.int32(self.row))
            for i in range(s.updates_per_block):
                self.learned = self.update(self.learned, jax.tree.map(lambda x, i=i: x[i], batches))
        for _ in range(s.rows_per_block):
            self.play(params)
        self.block += 1

    def play(self, params):
        frames, first, last = self.seen
        epsilon = jnp.float32(self.epsilon(self.row * self.n))
        actions = self.act(params, frames, epsilon, stream(self.seed, ACT, self.row))
        keys = jax.random.split(stream(self.seed, STEP, self.row), self.n)
        self.state, step = self.env_step(keys, self.state, actions)
        step = type(step)(*(np.asarray(x) for x in step))
        rewards = np.clip(step.rewards, -1, 1) if self.schedule.clip_rewards else step.rewards
        flags = FIRST * first + LAST * last + TERMINATED * step.terminated
        self.rows.append((frames, np.asarray(actions), rewards, flags.astype(np.uint8)))
        self.returns += step.rewards
        self.lengths += ~step.first
        for i in np.flatnonzero(step.ended):
            self.episodes.append((self.returns[i], self.lengths[i]))
            self.returns[i] = self.lengths[i] = 0
        self.seen = step.frames, step.first, step.ended
        self.row += 1

    def ring(self):
        """The ring as it lies in memory, slots that were never written zero."""
        capacity = self.schedule.replay_rows
        empty = copied(replays.empty_replay(capacity, self.n, self.env.spec.frame_shape, self.env.spec.frame_dtype))
        for row in range(max(0, self.row - capacity), self.row):
            for ring, values in zip(empty, self.rows[row], strict=True):
                ring[row % capacity] = values
        return empty


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, marks=pytest.mark.slow),
        {
            "num_envs": 4,
            "env": "GaussianBandit-misc",
            "limit": 5,
            "clip_rewards": True,
            "replay_steps": 56,
            "n_step": 2,
        },
        pytest.param(
            {
                "num_envs": 3,
                "head": "u51",
                "replay_steps": 60,
                "min_replay_steps": 33,
                "target_period_steps": 22,
                "n_step": 3,
                "q_lambda": 0.8,
                "q_lambda_greedy": 0.7,
            },
            marks=pytest.mark.slow,
        ),
        pytest.param({"num_envs": 1, "update_period_steps": 12, "replay_steps": 150}, marks=pytest.mark.slow),
        pytest.param({"num_envs": 20, "update_period_steps": 2, "replay_steps": 300}, marks=pytest.mark.slow),
    ],
    ids=[
        "every row kept",
        "ring and rewards clipped",
        "u51 with Q(lambda), four rows and three updates a block",
        "twelve rows a block, as a loop",
        "ten updates a block, as a loop",
    ],
)
def test_blocks_are_what_a_slow_twin_does(options):
    loop, twin = loop_of(seeds=[5], **options), Twin(*parts(**options), 5)
    blocks = 0
    for count in (1, 2, 9, 1, 14):
        assert loop.advance(count) == count
        for _ in range(count):
            twin.run_block()
        blocks += count
        assert loop.block == twin.block == blocks
        assert loop.row == twin.row == loop.counters["row"]
        lane, ring = copied(loop.lanes._replace(env=())), twin.ring()
        np.testing.assert_array_equal(lane.replay.actions, ring.actions)
        np.testing.assert_array_equal(lane.replay.flags, ring.flags)
        close((lane.replay.frames, lane.replay.rewards), (ring.frames, ring.rewards))
        close((lane.frames, lane.first, lane.last), twin.seen)
        close(lane.learner, copied(twin.learned))
        close((lane.running.returns, lane.running.lengths), (twin.returns, twin.lengths))
    assert twin.row > loop.schedule.replay_rows or not options  # the ring went round
    assert len(twin.episodes) > 4

    (totals,) = loop.take_totals()
    assert totals.episodes == len(twin.episodes)
    np.testing.assert_allclose(totals.returns, sum(r for r, _ in twin.episodes), rtol=1e-5)
    assert totals.lengths == sum(length for _, length in twin.episodes)
    assert totals.blocks == blocks - loop.schedule.first_learning_block > 4
    assert totals.info.first_bad == -1
    (nothing,) = loop.take_totals()
    assert (nothing.episodes, nothing.returns, nothing.lengths, nothing.blocks) == (0, 0, 0, 0)


def test_totals_are_those_of_the_ring():
    """Every step of this cart earns one, so its ring alone says how long episodes were."""
    loop = loop_of()
    loop.advance(60)
    flags = loop.read_rows(0, loop.row)["flags"]
    last = np.concatenate([flags & LAST != 0, np.asarray(loop.lanes.last)[None]])
    lengths = []
    for column in last.T:
        ends = np.flatnonzero(column)
        starts = [0, *(ends[:-1] + 1)]  # the row after a last frame is a first one
        lengths += [end - start for start, end in zip(starts, ends, strict=False)]
    (totals,) = loop.take_totals()
    assert totals.episodes == len(lengths) > 10
    assert totals.lengths == totals.returns == sum(lengths)
    assert max(lengths) == 12


@pytest.mark.parametrize(
    ("period", "num_envs", "steps_per_block", "start"),
    [
        pytest.param(2, 1, 2, 50, marks=pytest.mark.slow),
        (2, 3, 6, 54),
        pytest.param(2, 4, 4, 52, marks=pytest.mark.slow),
        pytest.param(2, 6, 6, 54, marks=pytest.mark.slow),
        pytest.param(4, 1, 4, 52, marks=pytest.mark.slow),
        pytest.param(4, 3, 12, 60, marks=pytest.mark.slow),
        pytest.param(4, 6, 12, 60, marks=pytest.mark.slow),
    ],
)
def test_the_ratio_of_updates_to_steps_whatever_the_environments(period, num_envs, steps_per_block, start):
    loop = loop_of(num_envs=num_envs, min_replay_steps=50, update_period_steps=period)
    for steps in (48, 60, 120, 240):
        loop.advance(steps // steps_per_block - loop.block)
        assert loop.lanes.learner.optimiser.count == max(0, steps - start) // period
    (totals,) = loop.take_totals()
    assert totals.blocks == (240 - start) // steps_per_block


def test_the_target_is_renewed_on_schedule():
    # Blocks of 8 steps, a period of 36, learning from 40 on: renewed at the first block at or after 36, 72, 108, ...
    slow = loop_of()
    renewals = [5, 9, 14, 18, 23, 27]
    target = copied(slow.lanes.learner.params)
    for block in range(28):
        before = copied(slow.lanes.learner.params)
        target = before if block in renewals else target
        slow.advance(1)
        close(slow.lanes.learner.target_params, target, rtol=0, atol=0)
        moved = (before["outputs"]["weights"] != np.asarray(slow.lanes.learner.params["outputs"]["weights"])).any()
        assert moved == (block >= 5)
    fast = loop_of()
    for count in (7, 1, 13, 7):
        fast.advance(count)
    close(fast.lanes.learner, slow.lanes.learner, rtol=0, atol=0)


def test_lanes_are_separate_runs():
    seeds, rates = [3, 8], [1e-2, 3e-3]
    both = loop_of(seeds=seeds, rates=rates)
    both.advance(20)
    rows, totals = both.read_rows(0, both.row), both.take_totals()
    assert len(totals) == 2
    for i, (seed, rate) in enumerate(zip(seeds, rates, strict=True)):
        alone = loop_of(seeds=[seed], rates=[rate])
        alone.advance(20)
        close(jax.tree.map(lambda x, i=i: x[i], copied(both.lanes.learner)), copied(alone.lanes.learner))
        for name, array in alone.read_rows(0, alone.row).items():
            np.testing.assert_allclose(rows[name][:, i], array, rtol=1e-4, atol=1e-5, err_msg=name)
        (own,) = alone.take_totals()
        close(totals[i], own, rtol=1e-3)
        if i == 0:
            close(both.params, alone.params)
    assert both.lanes.learner.learning_rate.tolist() == pytest.approx(rates)
    assert (rows["actions"][:, 0] != rows["actions"][:, 1]).any()


@pytest.mark.slow
def test_lanes_of_rates_and_penalties_are_separate_runs():
    rates, penalties = [1e-2, 1e-2, 3e-3, 3e-3], [0.5, 20.0, 0.5, 20.0]
    every = loop_of(seeds=[3] * 4, rates=rates, penalties=penalties, head="s51")
    every.advance(20)
    totals = every.take_totals()
    for i in (1, 2):
        # Alone it is the learner's own step size and the head's own penalty.
        env, learner, schedule = parts(head="s51", rate=rates[i])
        head = dataclasses.replace(learner.head, mass_penalty=penalties[i])
        alone = CompiledLoop(env, dataclasses.replace(learner, head=head), schedule, [3])
        alone.advance(20)
        close(jax.tree.map(lambda x, i=i: x[i], copied(every.lanes.learner)), copied(alone.lanes.learner))
        close(totals[i], alone.take_totals()[0], rtol=1e-3)
    weights = np.asarray(every.all_params["outputs"]["weights"])
    assert all((weights[i] != weights[j]).any() for i in range(4) for j in range(i))


def test_a_lane_without_a_step_size_stays_where_it_was():
    loop = loop_of(seeds=[1, 1], rates=[1e-2, 0.0])
    start = copied(loop.lanes.learner.params)
    close(*(jax.tree.map(lambda x, i=i: x[i], start) for i in (0, 1)), rtol=0, atol=0)
    loop.advance(12)
    after = copied(loop.lanes.learner.params)
    for name, array in after["outputs"].items():
        np.testing.assert_array_equal(array[1], start["outputs"][name][1])
        assert (array[0] != start["outputs"][name][0]).any()


@pytest.mark.parametrize("seeds", [[0], [0, 1]])
def test_two_programs_are_compiled(seeds, caplog):
    def compiled():
        return sum("Compiling jit(_blocks)" in record.getMessage() for record in caplog.records)

    loop = loop_of(seeds=seeds, batch_size=5)  # no other test compiles these
    with jax.log_compiles(), caplog.at_level("WARNING"):
        for count in (1, 2, 1):
            loop.advance(count)
        assert compiled() == 1
        for count in (2, 1, 3, 10, 2):  # learning starts within the first of them
            loop.advance(count)
            loop.take_totals()
        loop.load(loop.save(), loop.counters)
        loop.write_rows(0, loop.read_rows(0, 5))
        loop.advance(4)
    assert compiled() == 2
    with jax.log_compiles(), caplog.at_level("WARNING"):
        loop_of(seeds=[seed + 7 for seed in seeds], batch_size=5).advance(12)
    assert compiled() == 2, "runs that differ in their seeds share programs"


@pytest.mark.parametrize("seeds", [[0], [0, 1]])
def test_the_first_bad_update_has_its_number_in_the_run(seeds):
    # Two updates in a block, the first at 40 steps, which is block 5.
    loop = loop_of(seeds=seeds)
    loop.advance(9)
    assert all(totals.info.first_bad == -1 for totals in loop.take_totals())
    learner = loop.lanes.learner
    spoilt = jax.tree.map(lambda x: (x.at[-1] if len(seeds) > 1 else x.at[:]).set(jnp.nan), learner.params)
    loop.lanes = loop.lanes._replace(learner=learner._replace(params=spoilt))
    loop.advance(3)
    loop.advance(1)
    *good, bad = loop.take_totals()
    assert bad.info.first_bad == (9 - 5) * 2
    assert all(totals.info.first_bad == -1 for totals in good)


def test_a_bad_update_within_a_block():
    loop = loop_of(rates=[float("inf")])  # one finite loss, then none
    loop.advance(5)
    assert loop.take_totals()[0].info.first_bad == -1
    loop.advance(3)
    assert loop.take_totals()[0].info.first_bad == 1


def test_given_weights_begin_every_lane():
    loop = loop_of(seeds=[0, 1])
    given = {"outputs": {"weights": np.arange(8.0).reshape(4, 2)}}
    loop.set_params(given)
    for params in (loop.lanes.learner.params, loop.lanes.learner.target_params):
        np.testing.assert_array_equal(params["outputs"]["weights"], np.stack([given["outputs"]["weights"]] * 2))
    loop.advance(8)  # weights and target are not one buffer
    assert loop.spec == loop.env.spec
    assert loop.can_pause
