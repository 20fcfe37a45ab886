"""Supports that find themselves: what they start from, when they widen, and what a widening keeps."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cramerl import Support, project, with_unit_mass
from cramerl.deep.agent import Agent
from cramerl.deep.envs.base import EnvSpec
from cramerl.deep.heads import make_head
from cramerl.deep.learner import Learner, make_optimiser, with_params
from cramerl.deep.networks import make_network
from cramerl.deep.own_support import MOST_CLIPPED, Clipped, nothing_clipped, returns_seen
from cramerl.deep.replay import LAST, TERMINATED, Batch, Replay

SCALED = "u51 in scaled modes"
AGENTS = ["c51", "s51", "u51", SCALED, "l51", "hl_gauss"]
ATOMS, INPUTS, ACTIONS = 21, 3, 2
every_agent = pytest.mark.parametrize("name", AGENTS)


@pytest.fixture(autouse=True)
def loose():
    """optax's Adam raises a float to an integer power, which strict promotion forbids."""
    with jax.numpy_dtype_promotion("standard"):
        yield


def head_of(name: str, v_min: float, v_max: float) -> Any:
    name, options = ("u51", {"mode_exponent": 0.5}) if name == SCALED else (name, {})
    return make_head(name, num_atoms=ATOMS, v_min=v_min, v_max=v_max, **options)


def learner_of(name: str, support: Any = "own") -> Learner:
    head = head_of(name, 0.0, ATOMS - 1.0)
    network = make_network("mlp", (INPUTS,), ACTIONS, head.num_outputs, hidden_units=(8,))
    return Learner(head, network, make_optimiser("adam", 1e-5), 1e-2, support=support)


def agent_of(learner: Learner, params: Any) -> Agent:
    return Agent(learner.head, learner.network, params, EnvSpec("none", "gymnasium", ACTIONS, (INPUTS,), "float32"))


def replay_of(rewards: np.ndarray, flags: np.ndarray) -> Replay:
    shape = rewards.shape
    return Replay(
        jnp.zeros((*shape, 1)), jnp.zeros(shape, jnp.int32), jnp.asarray(rewards, jnp.float32), jnp.asarray(flags)
    )


# Where a support starts.


@pytest.mark.parametrize("written", [9, 12, 31])
def test_returns_are_those_of_a_slow_loop(written, rng):
    capacity, num_envs, discount = 12, 3, 0.9
    flags = (rng.random((capacity, num_envs)) < 0.15) * LAST + (rng.random((capacity, num_envs)) < 0.15) * TERMINATED
    rewards = rng.normal(size=(capacity, num_envs))
    returns, real = map(np.asarray, returns_seen(replay_of(rewards, flags.astype(np.uint8)), jnp.int32(written), 0.9))
    for i, row in enumerate(range(written - capacity, written)):
        for env in range(num_envs):
            counts = 0 <= row < written - 1 and not flags[row % capacity, env] & LAST
            assert real[i, env] == counts
            total, factor, now = 0.0, 1.0, row
            while counts and now < written - 1 and not flags[now % capacity, env] & LAST and factor:
                total += factor * rewards[now % capacity, env]
                factor *= 0.0 if flags[now % capacity, env] & TERMINATED else discount
                now += 1
            assert returns[i, env] == pytest.approx(total, abs=1e-5)


def found(learner: Learner, rewards: np.ndarray, discount: float = 0.9) -> Any:
    """The state after the support was found from one-step episodes, or from given rewards."""
    replay = replay_of(rewards, np.full(rewards.shape, TERMINATED, np.uint8))
    state = learner.init(jax.random.key(0))
    return learner.find_support(state, replay, jnp.int32(len(rewards)), discount)


@every_agent
def test_a_support_starts_around_the_returns_seen_and_predicts_them(name, rng):
    learner, rewards = learner_of(name), rng.uniform(-40, -20, (200, 2))
    state = found(learner, rewards)
    agent = agent_of(learner, state.params)
    assert agent.support is not None
    for mine, target in zip(jax.tree.leaves(state.params), jax.tree.leaves(state.target_params), strict=True):
        np.testing.assert_array_equal(mine, target)
    least, most = rewards[:-1].min(), rewards[:-1].max()
    width, around = most - least, 3.5 if name == "hl_gauss" else 0.5
    assert agent.support.v_min == pytest.approx(least - around * width, rel=1e-5)
    assert agent.support.v_max == pytest.approx(most + around * width, rel=1e-5)
    seen = jnp.zeros((1, INPUTS))  # where the weights of the last layer count for nothing
    # A logarithm cannot be that of nothing: a little mass lies on every atom.
    np.testing.assert_allclose(agent.values(seen)[0], rewards[:-1].mean(), atol=0.02 * width)
    atoms, masses = agent.distributions(seen)
    np.testing.assert_allclose(atoms[0, 0], agent.support.atoms, rtol=1e-5)
    near = max(2.0, atoms[0, 0, 1] - atoms[0, 0, 0])
    assert masses[0, :, (atoms[0, 0] < least - near) | (atoms[0, 0] > most + near)].max() < 0.01


@pytest.mark.parametrize("reward", [0.0, -3.0, 1e6, 1e-6])
def test_returns_that_are_all_equal_have_a_support_too(reward):
    support = agent_of(learner := learner_of("l51"), found(learner, np.full((50, 1), reward)).params).support
    assert support is not None
    assert support.v_min < reward < support.v_max
    assert support.v_max - support.v_min < 0.1 * max(abs(reward), 1 if reward == 0 else 0)


def test_a_support_that_came_with_weights_stays(rng):
    learner = learner_of("l51")
    given = found(learner, rng.normal(size=(50, 1))).params
    state = with_params(learner.init(jax.random.key(1)), given)
    replay = replay_of(100 * np.ones((50, 1)), np.full((50, 1), TERMINATED, np.uint8))
    after = learner.find_support(state, replay, jnp.int32(50), 0.9)
    for old, new in zip(jax.tree.leaves(given), jax.tree.leaves(after.params), strict=True):
        np.testing.assert_array_equal(old, new)


# Widening.


def clipped(below: float, above: float) -> Clipped:
    """Of a hundred batches, with these means."""
    sums = {"below": jnp.float32(100 * below), "above": jnp.float32(100 * above), "batches": jnp.int32(100)}
    return nothing_clipped(True)._replace(**sums)


NONE, MUCH = 0.9 * MOST_CLIPPED, 1.1 * MOST_CLIPPED
DIRECTIONS = {"up": (NONE, MUCH), "down": (MUCH, NONE), "both": (MUCH, MUCH)}
every_direction = pytest.mark.parametrize("direction", DIRECTIONS)


def trained(learner: Learner) -> Any:
    """A state with a support on [-2, 3], weights that differ from input to input, and moments that are not zero."""
    state = learner.init(jax.random.key(0))
    params = state.params | {"support": {"low": jnp.float32(-2), "spacing": jnp.float32(5 / (ATOMS - 1))}}
    noise = jax.tree.map(lambda x: jnp.ones_like(x) * jnp.arange(x.size).reshape(x.shape), params)
    return state._replace(params=params, optimiser=state.optimiser._replace(mu=noise, nu=noise))


def widened(learner: Learner, state: Any, direction: str) -> Any:
    return learner.change_target(state._replace(clipped=clipped(*DIRECTIONS[direction])))


@every_agent
def test_little_clipped_changes_nothing(name):
    learner = learner_of(name)
    state = trained(learner)
    after = learner.change_target(state._replace(clipped=clipped(NONE, NONE)))
    for old, new in zip(jax.tree.leaves(state.params), jax.tree.leaves(after.params), strict=True):
        np.testing.assert_array_equal(old, new)
    for old, new in zip(jax.tree.leaves(state.optimiser), jax.tree.leaves(after.optimiser), strict=True):
        np.testing.assert_array_equal(old, new)
    assert isinstance(after.clipped, Clipped)
    assert after.clipped.batches == 0


@every_agent
@every_direction
def test_a_widening_doubles_the_range_around_atoms_that_stay(name, direction):
    learner = learner_of(name)
    state = trained(learner)
    after = widened(learner, state, direction)
    old, new = (agent_of(learner, params).support for params in (state.params, after.params))
    assert old is not None
    assert new is not None
    low, high = {"up": (-2, 8), "down": (-7, 3), "both": (-4.5, 5.5)}[direction]
    np.testing.assert_allclose([new.v_min, new.v_max], [low, high], atol=1e-5)
    inside = new.atoms[(new.atoms > -2.001) & (new.atoms < 3.001)]
    assert np.abs(inside[:, None] - old.atoms).min(axis=1).max() < 1e-5, "every new atom inside is an old one"
    for mine, target in zip(jax.tree.leaves(after.params), jax.tree.leaves(after.target_params), strict=True):
        np.testing.assert_array_equal(mine, target)


@every_agent
@every_direction
def test_a_widening_keeps_predictions_as_far_as_coarser_atoms_can_say_them(name, direction, rng):
    learner = learner_of(name)
    state = trained(learner)
    after = widened(learner, state, direction)
    before, now = agent_of(learner, state.params), agent_of(learner, after.params)
    seen = rng.normal(size=(16, INPUTS)).astype(np.float32)
    (atoms, masses), (wide, moved) = before.distributions(seen), now.distributions(seen)
    if name in ("s51", "u51", SCALED):  # exactly the projection, so the mean is kept
        masses = with_unit_mass(Support.uniform(-2, 3, ATOMS), masses.astype(float))
        expected = project(Support(np.asarray(wide[0, 0], float)), atoms.astype(float), masses)
        np.testing.assert_allclose(moved, expected, atol=1e-4)
        np.testing.assert_allclose(now.values(seen), before.values(seen), atol=1e-4)
    elif name == "l51":  # the CDF is the same at every atom that stays, and nearly 0 or 1 at new ones
        heights, wide_heights = np.cumsum(masses, axis=-1), np.cumsum(moved, axis=-1)
        for i, atom in enumerate(wide[0, 0][:-1]):
            place = round(float(atom + 2) / 0.25)
            if 0 <= place < ATOMS - 1:
                np.testing.assert_allclose(wide_heights[..., i], heights[..., place], atol=1e-5)
            else:
                np.testing.assert_allclose(wide_heights[..., i], float(place >= ATOMS - 1), atol=2e-3)
    # The mean moves by less than a new spacing, whatever the head.
    assert np.abs(now.values(seen) - before.values(seen)).max() < 0.5


@every_direction
def test_a_widening_in_scaled_modes_is_the_plain_one_in_other_units(direction, rng):
    """Outputs are divided by the scale of their mode, so their gradients are multiplied by it."""
    sines = np.sin(np.pi / (2 * ATOMS) * np.arange(1, ATOMS))
    scale = np.tile(sines[0] / sines, ACTIONS)  # the root of an eigenvalue, as the exponent is 1/2
    shapes = {"weights": (8, len(scale)), "bias": (len(scale),)}
    layers = [{name: rng.random(shape) for name, shape in shapes.items()} for _ in range(3)]

    def widened_in(units: list[np.ndarray], learner: Learner) -> list[Any]:
        state = trained(learner)
        optimiser, parts = state.optimiser, [state.params, state.optimiser.mu, state.optimiser.nu]
        for i, (unit, layer) in enumerate(zip(units, layers, strict=True)):
            parts[i] = parts[i] | {"outputs": {k: jnp.asarray(x * unit, jnp.float32) for k, x in layer.items()}}
        state = state._replace(params=parts[0], optimiser=optimiser._replace(mu=parts[1], nu=parts[2]))
        after = widened(learner, state, direction)
        after = after.params, after.optimiser.mu, after.optimiser.nu
        return [
            jax.tree.map(lambda x, unit=unit: np.asarray(x) / unit, part["outputs"])
            for part, unit in zip(after, units, strict=True)
        ]

    plain = widened_in([np.ones_like(scale)] * 3, learner_of("u51"))
    scaled = widened_in([1 / scale, scale, scale**2], learner_of(SCALED))
    for mine, theirs in zip(jax.tree.leaves(scaled), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-5 * np.abs(theirs).max())


def test_moments_of_kept_heights_go_along():
    learner = learner_of("l51")
    state = trained(learner)
    after = widened(learner, state, "up")
    for name in ("mu", "nu"):
        old, new = (np.asarray(getattr(s.optimiser, name)["outputs"]["weights"]) for s in (state, after))
        old, new = (x.reshape(-1, ACTIONS, ATOMS - 1) for x in (old, new))
        np.testing.assert_array_equal(new[..., : ATOMS // 2], old[..., ::2])
        np.testing.assert_array_equal(new[..., ATOMS // 2 :], 0)


def test_centred_rmsprop_keeps_a_variance_after_a_widening():
    """Where all gradients were equal its variance is zero, and a projection adds up neighbouring moments."""
    learner = dataclasses.replace(learner_of("s51"), optimiser=make_optimiser("rmsprop", 1e-5))
    state = learner.init(jax.random.key(0))
    few = jax.tree.map(lambda x: jnp.arange(x.size, dtype=jnp.int32).reshape(x.shape) % ATOMS, state.params)
    mean = jax.tree.map(lambda x: ((x >= 4) & (x <= 6)).astype(jnp.float32), few)  # its own square
    state = trained(learner)._replace(optimiser=state.optimiser._replace(mu=mean, nu=mean))
    for direction in DIRECTIONS:
        moments = widened(learner, state, direction).optimiser
        for first, second in zip(*map(jax.tree.leaves, moments), strict=True):
            assert np.all(second >= first**2)
    same = learner.change_target(state._replace(clipped=clipped(NONE, NONE))).optimiser
    jax.tree.map(np.testing.assert_array_equal, same, state.optimiser)


# Learning with it.


def two_states() -> Batch:
    """A state that pays one for ever, and one whose episodes pay minus one and end."""
    seen = jnp.asarray([[1.0, 0, 0], [0, 1.0, 0]] * 8, dtype=jnp.float32)
    return Batch(
        observations=seen,
        actions=jnp.asarray([0, 0, 1, 1] * 4, dtype=jnp.int32),
        rewards=jnp.asarray([1.0, -1.0] * 8, dtype=jnp.float32),
        discounts=jnp.asarray([0.9, 0.0] * 8, dtype=jnp.float32),
        next_observations=seen,
        weights=jnp.ones(16, dtype=jnp.float32),
    )


@every_agent
def test_a_large_return_that_is_rare_is_not_clipped_for_ever(name):
    """One transition in 64 pays 40: 1.6 % of the mass, but all of the mean, 0.625."""
    learner = learner_of(name)
    state = found(learner, np.linspace(-0.1, 0.1, 50)[:, None])
    batch = jax.tree.map(lambda x: jnp.concatenate([x[1:2]] * 64), two_states())
    batch = batch._replace(rewards=jnp.zeros(64, dtype=jnp.float32).at[5].set(40.0))

    @jax.jit
    def run(state: Any) -> Any:
        def period(state: Any, _: Any) -> Any:
            return learner.learn(learner.change_target(state), batches, unroll=False)[0], None

        return jax.lax.scan(period, state, None, length=400)[0]

    batches = jax.tree.map(lambda x: jnp.broadcast_to(x, (4, *x.shape)), batch)
    agent = agent_of(learner, run(state).params)
    assert agent.support is not None
    assert 39 < agent.support.v_max < 170
    if name != "hl_gauss":  # its targets are means, which were never clipped
        assert agent.values(np.eye(3, dtype=np.float32)[1:2])[0, int(batch.actions[0])] == pytest.approx(0.625, abs=0.3)


@every_agent
def test_values_grow_beyond_the_first_support(name):
    """From returns between -0.1 and 0.1; the answer is 1 / (1 - 0.9) = 10, and -1."""
    learner = learner_of(name)
    state = found(learner, np.linspace(-0.1, 0.1, 50)[:, None])
    batches = jax.tree.map(lambda x: jnp.broadcast_to(x, (10, *x.shape)), two_states())

    @jax.jit
    def run(state: Any) -> Any:
        def period(state: Any, _: Any) -> Any:
            state, _ = learner.learn(learner.change_target(state), batches, unroll=False)
            return state, state.params["support"]

        return jax.lax.scan(period, state, None, length=400)

    state, supports = run(state)
    agent = agent_of(learner, state.params)
    assert agent.support is not None
    assert 10 < agent.support.v_max < 45
    assert agent.support.v_min < -1
    spacings = np.asarray(supports["spacing"])
    assert set(np.round(np.log2(spacings[1:] / spacings[:-1]), 3)) <= {0.0, 1.0}
    assert spacings[-1] == spacings[-100], "it stops widening"
    np.testing.assert_allclose(
        agent.values(np.eye(3, dtype=np.float32)[:2]), [[10, 10], [-1, -1]], atol=1.5 * float(spacings[-1])
    )


@every_agent
def test_a_head_on_unit_atoms_learns_as_one_on_its_own(name, rng):
    """With v_min and v_max given: the same targets, losses and values as a head whose atoms are the returns."""
    direct = learner_of(name, None)
    direct = Learner(head_of(name, -2.0, 3.0), direct.network, direct.optimiser, 1e-2)
    scaled = learner_of(name, (-2.0, 3.0))
    state, other = scaled.init(jax.random.key(0)), direct.init(jax.random.key(0))
    batch = two_states()._replace(rewards=jnp.asarray(rng.normal(size=16), dtype=jnp.float32))
    batches = jax.tree.map(lambda x: x[None], batch)
    target, wanted = scaled.targets(state, batch)[0], direct.targets(other, batch)[0]
    np.testing.assert_allclose(target, wanted, atol=2e-5)
    infos = (learner.learn(start, batches, unroll=True)[1] for learner, start in ((scaled, state), (direct, other)))
    for mine, theirs in zip(*infos, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=2e-4)


@every_agent
def test_learning_can_start_at_zero(name):
    learner = learner_of(name, (-2.0, 3.0))
    learner = Learner(learner.head, learner.network, learner.optimiser, 1e-2, support=(-2.0, 3.0), starts_at_zero=True)
    agent = agent_of(learner, learner.init(jax.random.key(0)).params)
    np.testing.assert_allclose(agent.values(np.zeros((1, INPUTS), np.float32)), 0, atol=0.05)


def test_lanes_have_supports_of_their_own(rng):
    learner = learner_of("u51")
    states = jax.vmap(learner.init)(jax.random.split(jax.random.key(0), 2))
    rewards = np.stack([rng.uniform(0, 1, (50, 1)), rng.uniform(-100, 0, (50, 1))])
    replays = jax.vmap(replay_of)(rewards, np.full(rewards.shape, TERMINATED, np.uint8))
    find = partial(learner.find_support, discount=0.9)
    found = jax.vmap(find, in_axes=(0, 0, None))(states, replays, jnp.int32(50))
    low = np.asarray(found.params["support"]["low"])
    assert low[0] == pytest.approx(-0.5, abs=0.1)
    assert low[1] == pytest.approx(-150, abs=10)
    much = found._replace(clipped=jax.tree.map(lambda *x: jnp.stack(x), clipped(MUCH, NONE), clipped(NONE, NONE)))
    after = jax.vmap(learner.change_target)(much).params["support"]
    np.testing.assert_allclose(after["spacing"] / found.params["support"]["spacing"], [2, 1])
