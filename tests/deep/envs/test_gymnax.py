"""gymnax environments, against gymnax's own functions called by hand, one step after another."""

from functools import partial

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cramerl.deep.envs.base import Step
from cramerl.deep.envs.gymnax import GymnaxEnv, GymnaxOnHost

CONTINUOUS = ["Pendulum-v1", "MountainCarContinuous-v0", "PointRobot-misc", "Reacher-misc", "Swimmer-misc"]
SLOW = ["Asterix-MinAtar", "Seaquest-MinAtar", "Freeway-MinAtar"]  # to compile
PICTURES = [
    "Breakout-MinAtar",
    "SpaceInvaders-MinAtar",
    "Pong-misc",
    *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW),
]


@pytest.fixture(autouse=True)
def lenient():
    """gymnax mixes dtypes and ranks; conftest.py forbids it."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def played(env, reset_key, keys, actions):
    """First frame and steps of one environment, compiled in one go."""

    def step(state, item):
        return env.step(item[0], state, item[1])

    @jax.jit
    def run():
        state, frame = env.reset(reset_key)
        return frame, jax.lax.scan(step, state, (keys, actions))[1]

    frame, steps = run()
    return np.asarray(frame), Step(*(np.asarray(x) for x in steps))


def by_hand(name, reset_key, keys, actions, limit=None):
    """The same by gymnax's `reset_env` and `step_env`, with the order of an episode's end written out."""
    env, params = gymnax.make(name)
    if limit is not None:
        params = params.replace(max_steps_in_episode=limit)
    reset, step = jax.jit(env.reset_env), jax.jit(env.step_env)
    limit = params.max_steps_in_episode
    start, state = reset(reset_key, params)
    steps, over, length = [], False, 0
    for key, action in zip(keys, actions, strict=True):
        step_key, reset_key = jax.random.split(key)
        if over:
            frame, state = reset(reset_key, params)
            steps.append(Step(np.asarray(frame), 0.0, False, False, True))
            over, length = False, 0
            continue
        frame, state, reward, terminated, _ = step(step_key, state, action, params)
        length += 1
        over = bool(terminated) or length == limit
        steps.append(Step(np.asarray(frame), float(reward), bool(terminated), over, False))
    return np.asarray(start), Step(*(np.stack(column) for column in zip(*steps, strict=True)))


def both(name, num_steps, *, seed=0, limit=None):
    env = GymnaxEnv(name, limit)
    rng = np.random.default_rng(seed)
    actions = rng.integers(0, env.spec.num_actions, num_steps, dtype=np.int32)
    reset_key, *_ = keys = jax.random.split(jax.random.key(seed), num_steps + 1)
    start, steps = played(env, reset_key, keys[1:], actions)
    twin_start, twin = by_hand(name, reset_key, keys[1:], actions, limit)
    for ours, theirs in zip(steps[1:], twin[1:], strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert steps.rewards.dtype == np.float32
    assert all(x.dtype == bool for x in steps[2:])
    return env, (start, steps), (twin_start, twin)


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_are_gymnaxs_in_a_byte_each(name):
    env, (start, steps), (twin_start, twin) = both(name, 200, limit=70)
    assert env.spec.family == "gymnax"
    assert (env.spec.frame_dtype, env.spec.stack, env.spec.frame_scale) == ("uint8", 1, 1.0)
    assert env.spec.frame_shape == twin_start.shape == env.spec.observation_shape
    assert start.dtype == steps.frames.dtype == np.uint8
    assert set(np.unique(twin.frames)) == {0.0, 1.0}
    np.testing.assert_array_equal(start, twin_start)
    np.testing.assert_array_equal(steps.frames, twin.frames)
    # The comparison is empty unless there is something to compare.
    assert steps.ended.sum() >= 2
    assert steps.first.sum() >= 2
    if name in ("Breakout-MinAtar", "SpaceInvaders-MinAtar", "Asterix-MinAtar"):
        assert steps.rewards.any()
    if name in ("Breakout-MinAtar", "SpaceInvaders-MinAtar"):
        assert steps.terminated.any()


def test_cartpole_falls_and_runs_out_of_time():
    env, (start, steps), (twin_start, twin) = both("CartPole-v1", 300, seed=1, limit=18)
    assert (env.spec.num_actions, env.spec.frame_shape, env.spec.frame_dtype) == (2, (4,), "float32")
    np.testing.assert_allclose(start, twin_start, rtol=1e-6)
    np.testing.assert_allclose(steps.frames, twin.frames, rtol=1e-4, atol=1e-6)
    assert (steps.ended & steps.terminated).sum() >= 3
    assert (steps.ended & ~steps.terminated).sum() >= 3
    assert not (steps.terminated & ~steps.ended).any()
    np.testing.assert_array_equal(steps.first[1:], steps.ended[:-1])
    np.testing.assert_array_equal(steps.rewards, 1.0 - steps.first)


def test_a_time_limit_is_no_termination_and_keeps_the_last_frame():
    env = GymnaxEnv("CartPole-v1", 3)
    keys = jax.random.split(jax.random.key(0), 8)
    start, steps = played(env, jax.random.key(7), keys, np.array([0, 1, 0, 1, 0, 1, 0, 1], np.int32))
    assert np.flatnonzero(steps.ended).tolist() == [2, 6]
    assert np.flatnonzero(steps.first).tolist() == [3, 7]
    assert not steps.terminated.any()
    assert steps.rewards.tolist() == [1, 1, 1, 0, 1, 1, 1, 0]
    # The cart moves on by a fiftieth of its speed, at the last step too; at the first frame of an episode it does not.
    moved = np.concatenate([start[None], steps.frames])
    jump = np.abs(moved[1:, 0] - moved[:-1, 0] - 0.02 * moved[:-1, 1])
    assert jump[[0, 1, 2, 4, 5, 6]].max() < 1e-6
    assert jump[[3, 7]].min() > 1e-4


def test_the_limit_is_gymnaxs_own_if_none_is_given():
    env, (_, steps), _ = both("CartPole-v1", 520, seed=3)
    assert env._params.max_steps_in_episode == 500
    assert steps.terminated.sum() == steps.ended.sum() > 5


@pytest.mark.parametrize("name", ["CartPole-v1", "Catch-bsuite"])
def test_a_step_after_an_end_ignores_the_action(name):
    env = GymnaxEnv(name, 1)
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    key, actions = jax.random.key(2), jnp.arange(env.spec.num_actions)
    state, last = jax.jit(env.step)(jax.random.key(1), state, actions[0])
    assert bool(last.ended)
    assert bool(state.over)
    states, step = jax.jit(jax.vmap(env.step, in_axes=(None, None, 0)))(key, state, actions)
    for leaf in jax.tree.leaves((states, step)):
        np.testing.assert_array_equal(leaf, np.broadcast_to(leaf[:1], leaf.shape))
    fresh, frame = jax.jit(env.reset)(jax.random.split(key)[1])
    # Two programs: their last bits may differ.
    np.testing.assert_allclose(step.frames[0], frame, rtol=1e-5, atol=1e-7)
    for ours, theirs in zip(jax.tree.leaves(states.inner), jax.tree.leaves(fresh.inner), strict=True):
        np.testing.assert_allclose(ours[0], theirs, rtol=1e-5, atol=1e-7)
    assert step.first.all()
    for nothing in (step.rewards, step.terminated, step.ended, states.over):
        assert not nothing.any()


def test_sticky_actions_are_the_last_ones_taken_again():
    """What happened is what a game without them does when it is given the actions that were taken."""
    sticky, plain, steps = GymnaxEnv("CartPole-v1", 20, sticky=0.5), GymnaxEnv("CartPole-v1", 20), 200

    def play(carry, key):
        state, twin = carry
        chosen = jax.random.randint(jax.random.fold_in(key, 7), (), 0, 2)
        new, step = sticky.step(key, state, chosen)
        twin, twin_step = plain.step(key, twin, jnp.where(state.over, 0, new.last_action))
        seen = (state.last_action, chosen, new.last_action, state.over, step, twin_step)
        return (new, twin), seen

    start = sticky.reset(jax.random.key(0))[0], plain.reset(jax.random.key(0))[0]
    _, (before, chosen, taken, over, step, twin) = jax.jit(partial(jax.lax.scan, play))(
        start, jax.random.split(jax.random.key(1), steps)
    )
    for ours, theirs in zip(step, twin, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    before, chosen, taken = (np.asarray(x)[~np.asarray(over)] for x in (before, chosen, taken))
    assert np.all((taken == chosen) | (taken == before))
    differ = before != chosen
    assert 0.35 < np.mean(taken[differ] == before[differ]) < 0.65  # half of about 95; four standard errors
    assert np.asarray(over).any()


def test_a_new_episode_starts_with_no_action_to_repeat():
    env = GymnaxEnv("CartPole-v1", 1, sticky=1.0)
    state, _ = env.reset(jax.random.key(0))
    state, _ = env.step(jax.random.key(1), state._replace(last_action=jnp.int32(1)), jnp.int32(1))
    assert bool(state.over)
    assert int(env.step(jax.random.key(2), state, jnp.int32(1))[0].last_action) == 0
    assert GymnaxEnv("CartPole-v1", 1) != env


def test_every_environment_with_discrete_actions_keeps_its_state_in_one_type():
    """A compiled loop carries the state: shapes and dtypes after a step are those after a reset."""
    for name in gymnax.registered_envs:
        if name == "MNISTBandit-bsuite" or name in CONTINUOUS:  # the first downloads its pictures
            continue
        env = GymnaxEnv(name)
        state, frame = jax.eval_shape(env.reset, jax.random.key(0))
        after, step = jax.eval_shape(env.step, jax.random.key(0), state, jnp.int32(0))
        assert jax.tree.map(lambda x: (x.shape, x.dtype), after) == jax.tree.map(lambda x: (x.shape, x.dtype), state)
        assert (
            (frame.shape, frame.dtype) == (step.frames.shape, step.frames.dtype) == (env.spec.frame_shape, frame.dtype)
        )
        assert frame.dtype == env.spec.frame_dtype
        assert env.spec.name == name


def test_stepped_from_python_it_is_the_same():
    limit, seed, n, num_steps = 15, 4, 3, 60
    env = GymnaxEnv("CartPole-v1", limit)
    envs = GymnaxOnHost(env, n)
    assert (envs.spec, envs.num_envs) == (env.spec, n)
    actions = np.random.default_rng(0).integers(0, 2, (num_steps, n))
    start = envs.reset(seed)
    steps = [envs.step(a) for a in actions]
    assert all(isinstance(x, np.ndarray) for x in (start, *steps[0]))
    key = jax.random.key(seed)
    keys = [jax.random.split(jax.random.fold_in(key, t), n) for t in range(num_steps + 1)]
    for i in range(n):
        own = jnp.stack([k[i] for k in keys[1:]])
        twin_start, twin = by_hand("CartPole-v1", keys[0][i], own, actions[:, i].astype(np.int32), limit)
        np.testing.assert_allclose(start[i], twin_start, rtol=1e-6)
        for name in ("rewards", "terminated", "ended", "first"):
            np.testing.assert_array_equal([getattr(step, name)[i] for step in steps], getattr(twin, name), name)
        frames = np.stack([step.frames[i] for step in steps])
        np.testing.assert_allclose(frames, twin.frames, rtol=1e-4, atol=1e-6)
    assert sum(step.ended.sum() for step in steps) > n

    np.testing.assert_array_equal(start, envs.reset(seed))
    for a, before in zip(actions, steps, strict=True):
        for x, y in zip(envs.step(a), before, strict=True):
            np.testing.assert_array_equal(x, y)
    assert (envs.reset(seed + 1) != start).any()
    envs.close()
    envs.close()


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous_actions_are_refused(name):
    with pytest.raises(ValueError, match=rf"^env must have discrete actions, {name} has Box actions$"):
        GymnaxEnv(name)


def test_options_are_parameters_or_arguments():
    key = jax.random.key(3)
    env, same, heavy = (GymnaxEnv("CartPole-v1", None, options) for options in (None, {}, {"gravity": 20}))
    assert env == same != heavy
    assert hash(env) == hash(same) != hash(heavy)
    assert GymnaxEnv("CartPole-v1", None, {"gravity": 20.0}) != heavy  # another program, perhaps
    state, _ = heavy.reset(key)
    inner, params = gymnax.make("CartPole-v1")
    found = heavy.step(key, state, jnp.int32(1))[1].frames
    step_key, _ = jax.random.split(key)
    expected = inner.step_env(step_key, state.inner, 1, params.replace(gravity=20.0))[0]
    np.testing.assert_array_equal(found, expected)
    assert np.abs(found - env.step(key, state, jnp.int32(1))[1].frames).max() > 1e-4
    assert GymnaxEnv("Catch-bsuite", None, {"rows": 7, "columns": 3}).spec.frame_shape == (7, 3)


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        (
            "CartPole-v1",
            {"gravty": 1},
            r"^options must be arguments of 'CartPole-v1', got {'gravty': 1}: .*; it has .*",
        ),
        ("CartPole-v1", {"gravity": "low"}, r"^option gravity must be a number, got 'low'$"),
        ("CartPole-v1", {"gravity": True}, r"^option gravity must be a number, got True$"),
        ("Freeway-MinAtar", {"player_speed": 1.5}, r"^option player_speed must be an integer, got 1.5$"),
        ("Asterix-MinAtar", {"ramping": 0}, r"^option ramping must be true or false, got 0$"),
        ("CartPole-v1", {"max_steps_in_episode": 5}, r"^options must not contain max_steps_in_episode, .*"),
    ],
)
def test_bad_options(name, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        GymnaxEnv(name, None, options)


def test_unknown_names():
    with pytest.raises(ValueError, match=r"^env must be one of CartPole-v1, .* \(gymnax\), got 'Pnog-MinAtar'$"):
        GymnaxEnv("Pnog-MinAtar")
