"""The learner: updates by hand, optimisers by their formulas, and policy evaluation against `cramerl.linear`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.stats import chisquare

from cramerl import linear
from cramerl.deep.heads import HEADS, make_head
from cramerl.deep.learner import Learner, LearnerState, finite_lanes, make_optimiser
from cramerl.deep.networks import make_network
from cramerl.deep.own_support import nothing_clipped
from cramerl.deep.replay import Batch
from cramerl.runs.presets import preset

SGD = optax.identity()  # the direction is the gradient
INPUTS, ACTIONS, UPDATES, SIZE = 3, 4, 4, 6


@pytest.fixture
def loose() -> Iterator[None]:
    """optax's Adam raises a float to an integer power, which strict promotion forbids."""
    with jax.numpy_dtype_promotion("standard"):
        yield


@cache
def learner_of(name: str, double_q: bool) -> Learner:
    """The same for the same request, so that the programs below are compiled once."""
    head = make_head(name, num_atoms=7, v_min=-3.0, v_max=3.0)
    network = make_network("mlp", (INPUTS,), ACTIONS, head.num_outputs, hidden_units=(8,))
    return Learner(head, network, SGD, 0.05, double_q)


@cache
def state_of(learner: Learner) -> LearnerState:
    """With a target network of its own."""
    state = learner.init(jax.random.key(0))
    return state._replace(target_params=learner.network.init(jax.random.key(1)))


def batches_of(rng: np.random.Generator, shape: tuple[int, ...] = (UPDATES, SIZE)) -> Batch:
    def floats(*size: int) -> Any:
        return jnp.asarray(rng.normal(size=size), dtype=jnp.float32)

    return Batch(
        observations=floats(*shape, INPUTS),
        actions=jnp.asarray(rng.integers(0, ACTIONS, shape), dtype=jnp.int32),
        rewards=floats(*shape),
        discounts=jnp.asarray(rng.choice([0.0, 0.9, 0.9**2], shape), dtype=jnp.float32),
        next_observations=floats(*shape, INPUTS),
        weights=jnp.asarray(rng.random(shape) < 0.8, dtype=jnp.float32),
    )


def _learn(learner: Learner, state: LearnerState, batches: Batch, unroll: bool = False) -> Any:
    return learner.learn(state, batches, unroll=unroll)


def _step(learner: Learner, state: LearnerState, batch: Batch) -> Any:
    return learner.update(state, batch, learner.targets(state, batch)[0])


learn = jax.jit(_learn, static_argnums=(0, 3))
step = jax.jit(_step, static_argnums=0)


def close(left: Any, right: Any, atol: float = 1e-5) -> None:
    for x, y in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=atol)


# Linear networks on one-hot observations: the weights are the outputs.


def table(head: Any, outputs: Any, target: Any = None, rate: float = 0.0, double_q: bool = False) -> Any:
    """A learner whose outputs (S, A, O) are given, and those of its target network."""
    given = [jnp.asarray(x, dtype=jnp.float32) for x in (outputs, outputs if target is None else target)]
    states, actions, size = given[0].shape
    network = make_network("linear", (states,), actions, size)
    learner = Learner(head, network, SGD, rate, double_q)
    params, target_params = ({"outputs": {"weights": x.reshape(states, -1)}} for x in given)
    penalty = jnp.float32(getattr(head, "mass_penalty", 0.0))
    return learner, LearnerState(params, target_params, SGD.init(params), jnp.float32(rate), penalty)


def one_hot_batch(states: Any, actions: Any, rewards: Any, discounts: Any, following: Any, num_states: int) -> Batch:
    eye = jnp.eye(num_states, dtype=jnp.float32)
    return Batch(
        observations=eye[np.asarray(states)],
        actions=jnp.asarray(actions, dtype=jnp.int32),
        rewards=jnp.asarray(rewards, dtype=jnp.float32),
        discounts=jnp.asarray(discounts, dtype=jnp.float32),
        next_observations=eye[np.asarray(following)],
        weights=jnp.ones(len(states), dtype=jnp.float32),
    )


# A run of updates.


@pytest.mark.parametrize(
    ("name", "double_q"),
    [("dqn", False), ("c51", False), ("s51", False), ("u51", False), ("dqn", True), ("u51", True)],
)
def test_learning_is_one_update_after_the_other(name, double_q, rng):
    learner, batches = learner_of(name, double_q), batches_of(rng)
    before = state = state_of(learner)
    losses, values = [], []
    for i in range(UPDATES):
        batch = jax.tree.map(lambda x, i=i: x[i], batches)
        state, (loss, outputs) = step(learner, state, batch)
        losses.append(loss)
        values.append(np.mean(learner.head.values(outputs)))
    found, info = learn(learner, before, batches)
    close(found, state)
    close(found.target_params, before.target_params, atol=0)
    np.testing.assert_allclose([info.loss, info.q_values], [np.mean(losses), np.mean(values)], rtol=0, atol=1e-5)
    assert info.first_bad == -1


@pytest.mark.parametrize("name", ["dqn", "u51"])
def test_double_q_learns_something_else(name, rng):
    batches = batches_of(rng)
    plain, double = (
        learn(learner, state_of(learner), batches)[0].params
        for learner in (learner_of(name, False), learner_of(name, True))
    )
    assert max(np.abs(x - y).max() for x, y in zip(*map(jax.tree.leaves, (plain, double)), strict=True)) > 1e-3


@pytest.mark.parametrize("double_q", [False, True])
def test_written_out_or_in_a_loop(double_q, rng):
    learner, batches = learner_of("dqn", double_q), batches_of(rng)
    state = state_of(learner)
    close(learn(learner, state, batches, True), learn(learner, state, batches), atol=1e-6)


def test_a_new_learner_starts_with_equal_networks():
    learner = learner_of("s51", False)
    state = learner.init(jax.random.key(3))
    close(state.params, state.target_params, atol=0)
    assert state.learning_rate.dtype == jnp.float32
    assert state.learning_rate == np.float32(0.05)


def test_syncing_copies_the_learning_network(rng):
    learner = learner_of("s51", False)
    state, _ = learn(learner, state_of(learner), batches_of(rng))
    synced = learner.change_target(state)
    close(synced.target_params, state.params, atol=0)
    close(synced._replace(target_params=None), state._replace(target_params=None), atol=0)


def test_the_learning_rate_is_the_states(rng):
    # Lanes of one program differ in it. Without memory in the optimiser one step is proportional to it.
    learner, batch = learner_of("c51", False), batches_of(rng, (SIZE,))
    state = state_of(learner)

    def moved(rate: float) -> Any:
        after, _ = step(learner, state._replace(learning_rate=jnp.float32(rate)), batch)
        assert after.learning_rate == np.float32(rate)
        return jax.tree.map(lambda x, y: np.asarray(x) - np.asarray(y), after.params, state.params)

    close(moved(0.0), jax.tree.map(np.zeros_like, state.params), atol=0)
    close(moved(0.5), jax.tree.map(lambda x: 10 * x, moved(0.05)), atol=1e-5)


def test_double_q_by_hand():
    # Next state 1: the learning network prefers action 2, the target network action 0.
    online = [[[0.0], [0.0], [0.0]], [[1.0], [2.0], [3.0]]]
    target = [[[0.0], [0.0], [0.0]], [[9.0], [5.0], [7.0]]]
    batch = one_hot_batch([0, 0], [1, 1], [0.5, 0.5], [0.9, 0.0], [1, 1], num_states=2)
    for double_q, value in ((True, 7.0), (False, 9.0)):
        learner, state = table(make_head("dqn"), online, target, double_q=double_q)
        found, chosen = jax.jit(learner.targets)(state, batch)
        np.testing.assert_allclose(found, [0.5 + 0.9 * value, 0.5], rtol=1e-6)
        np.testing.assert_array_equal(chosen, [[value], [value]])


def test_double_q_takes_the_whole_distribution_of_the_target_network():
    head = make_head("s51", num_atoms=3, v_min=-1.0, v_max=1.0)
    online = np.array([[[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]])  # prefers action 0
    target = np.array([[[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]]])  # prefers action 1
    batch = one_hot_batch([0], [0], [0.0], [1.0], [0], num_states=1)
    for double_q, action in ((True, 0), (False, 1)):
        learner, state = table(head, online, target, double_q=double_q)
        found, _ = jax.jit(learner.targets)(state, batch)
        np.testing.assert_allclose(found[0], target[0, action], atol=1e-7)


@pytest.mark.parametrize("name", ["s51"])
def test_entries_without_weight_do_not_count(name, rng):
    learner = learner_of(name, False)
    state, batch = state_of(learner), batches_of(rng, (SIZE,))
    counts = np.array([1, 0, 1, 1, 0, 1], dtype=np.float32)
    batch = batch._replace(weights=jnp.asarray(counts))
    other = batches_of(rng, (SIZE,))

    def mixed(x: Any, y: Any) -> Any:
        return jnp.where(jnp.asarray(counts == 1).reshape(-1, *(1,) * (x.ndim - 1)), x, y)

    changed = jax.tree.map(mixed, batch, other)._replace(weights=batch.weights)
    kept: Any = jax.tree.map(lambda x: x[counts == 1], batch)

    def after(batch: Batch) -> Any:
        state_after, (loss, _) = step(learner, state, batch)
        return state_after.params, loss

    close(after(changed), after(batch), atol=0)
    close(after(kept), after(batch), atol=1e-6)
    params, loss = after(batch._replace(weights=jnp.zeros(SIZE, dtype=jnp.float32)))
    close((params, loss), (state.params, 0.0), atol=0)


# Optimisers.


def numpy_adam(gradients: Any, rate: float, epsilon: float, start: np.ndarray) -> np.ndarray:
    """Kingma and Ba 2015, algorithm 1: epsilon outside the root, after the bias correction."""
    w, m, v = start.astype(float), np.zeros_like(start), np.zeros_like(start)
    for t in range(1, 4):
        g = gradients(w)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        w = w - rate * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + epsilon)
    return w


def numpy_rmsprop(gradients: Any, rate: float, epsilon: float, start: np.ndarray) -> np.ndarray:
    """Graves 2013, Eqs. 38 to 42 without momentum: epsilon inside the root, no bias correction."""
    w, mean, square = start.astype(float), np.zeros_like(start), np.zeros_like(start)
    for _ in range(3):
        g = gradients(w)
        mean, square = 0.95 * mean + 0.05 * g, 0.95 * square + 0.05 * g**2
        w = w - rate * g / np.sqrt(square - mean**2 + epsilon)
    return w


OPTIMISERS = [
    ("adam", numpy_adam, lambda rate, e: optax.adam(rate, eps=e)),
    ("rmsprop", numpy_rmsprop, lambda rate, e: optax.rmsprop(rate, decay=0.95, eps=e, centered=True)),
]


@pytest.mark.usefixtures("loose")
@pytest.mark.parametrize(("name", "by_hand", "library"), OPTIMISERS, ids=["adam", "rmsprop"])
@pytest.mark.parametrize("epsilon", [0.01 / 32, 0.3])
def test_optimisers_follow_their_formulas(name, by_hand, library, epsilon, rng):
    # A linear value of three features towards given targets: the gradient of the mean square is known.
    features, targets, rate = rng.normal(size=(5, 3)), rng.normal(size=5), 0.05
    network = make_network("linear", (3,), 1, 1)
    learner = Learner(make_head("dqn", dqn_loss="squared"), network, make_optimiser(name, epsilon), rate)
    batch = Batch(
        observations=jnp.asarray(features, dtype=jnp.float32),
        actions=jnp.zeros(5, dtype=jnp.int32),
        rewards=jnp.asarray(targets, dtype=jnp.float32),
        discounts=jnp.zeros(5, dtype=jnp.float32),
        next_observations=jnp.zeros((5, 3), dtype=jnp.float32),
        weights=jnp.ones(5, dtype=jnp.float32),
    )
    start = learner.init(jax.random.key(0))
    found, _ = learn(learner, start, jax.tree.map(lambda x: jnp.stack([x] * 3), batch))

    def gradients(w: Any) -> Any:
        return 2 / 5 * features.T @ (features @ w - targets)

    weights = np.asarray(start.params["outputs"]["weights"])
    expected = np.asarray(by_hand(gradients, rate, epsilon, weights[:, 0]))
    np.testing.assert_allclose(np.asarray(found.params["outputs"]["weights"])[:, 0], expected, rtol=0, atol=2e-5)

    optimiser, params = library(rate, epsilon), jnp.asarray(weights)
    memory = optimiser.init(params)
    for _ in range(3):
        gradient = jnp.asarray(gradients(np.asarray(params)[:, 0])[:, None], dtype=jnp.float32)
        updates, memory = optimiser.update(gradient, memory, params)
        params = optax.apply_updates(params, updates)
    np.testing.assert_allclose(found.params["outputs"]["weights"], np.asarray(params), rtol=0, atol=2e-5)


@pytest.mark.parametrize("share", [0.4, 2.0])
def test_a_gradient_is_scaled_down_to_the_largest_norm(share, rng):
    """By hand: all weights are scaled alike if their common norm exceeds the limit, otherwise not at all."""
    free, batch = learner_of("s51", False), jax.tree.map(lambda x: x[0], batches_of(rng))
    start = state_of(free)
    moved = jax.tree.map(lambda new, old: np.asarray(new - old), step(free, start, batch)[0].params, start.params)
    norm = np.sqrt(sum(np.sum(np.float64(leaf) ** 2) for leaf in jax.tree.leaves(moved)))
    largest = share * float(norm) / free.learning_rate
    found = step(dataclasses.replace(free, max_gradient_norm=largest), start, batch)[0].params
    factor = min(1.0, share)
    close(found, jax.tree.map(lambda old, change: old + np.float32(factor) * change, start.params, moved), 1e-6)


def test_a_support_widens_with_a_limit_on_gradients(rng, loose):
    """Widening changes Adam's moments, which a limit on gradients leaves where they are."""
    head = make_head("s51", num_atoms=7, v_min=0.0, v_max=6.0)
    network = make_network("mlp", (INPUTS,), ACTIONS, head.num_outputs, hidden_units=(8,))
    learner = Learner(head, network, make_optimiser("adam", 1e-4), 0.05, support="own", max_gradient_norm=0.1)
    batch = jax.tree.map(lambda x: x[0], batches_of(rng))

    @jax.jit
    def learn_and_widen() -> tuple[LearnerState, LearnerState]:
        state = learner.init(jax.random.key(0))
        much = nothing_clipped(True)._replace(above=jnp.float32(10), batches=jnp.int32(10))
        return state, learner.change_target(_step(learner, state, batch)[0]._replace(clipped=much))

    start, wider = learn_and_widen()
    assert float(wider.params["support"]["spacing"]) == 2 * float(start.params["support"]["spacing"])
    assert jax.tree.structure(wider.optimiser) == jax.tree.structure(start.optimiser)


def test_other_optimisers_are_refused():
    with pytest.raises(ValueError, match="optimiser must be one of 'adam', 'rmsprop', got 'sgd'"):
        make_optimiser("sgd", 1e-8)


# Acting.


def test_acting_greedily_and_at_random():
    values = np.array([[[0.0], [2.0], [1.0]], [[5.0], [0.0], [5.0]], [[3.0], [3.0], [3.0]], [[-2.0], [-3.0], [-1.0]]])
    learner, state = table(make_head("dqn"), values)
    seen, act = jnp.tile(jnp.eye(4, dtype=jnp.float32), (3000, 1)), jax.jit(learner.act)
    greedy = act(state.params, seen, jnp.float32(0), jax.random.key(0))
    assert greedy.dtype == jnp.int32
    np.testing.assert_array_equal(greedy, np.tile([1, 0, 0, 2], 3000))  # ties go to the lowest
    random = np.asarray(act(state.params, seen, jnp.float32(1), jax.random.key(1))).reshape(-1, 4)
    assert random.dtype == np.int32
    for column in random.T:
        assert chisquare(np.bincount(column, minlength=3)).pvalue > 1e-3
    # In between: the greedy action with probability 1 - epsilon + epsilon / A.
    mixed = np.asarray(act(state.params, seen, jnp.float32(0.3), jax.random.key(2))).reshape(-1, 4)
    share = np.mean(mixed == [1, 0, 0, 2])
    assert abs(share - 0.8) < 4 * np.sqrt(0.16 / mixed.size)


@pytest.mark.parametrize("name", ["s51", "qr"])
def test_actions_are_compared_by_the_mean_of_the_distribution(name):
    learner = learner_of(name, False)
    state, seen = learner.init(jax.random.key(5)), jax.random.normal(jax.random.key(6), (20, INPUTS))
    actions = jax.jit(learner.act)(state.params, seen, jnp.float32(0), jax.random.key(7))
    outputs = learner.network.apply(state.params, seen)
    atoms, masses = map(np.asarray, learner.head.distribution(outputs))
    # Of signed masses of any total the mean is taken after what is missing to one is spread evenly.
    masses = masses + (1 - masses.sum(-1, keepdims=True)) / masses.shape[-1]
    np.testing.assert_array_equal(actions, np.argmax((atoms * masses).sum(-1), axis=-1))


def test_epsilon_of_rmsprop_for_a_mean_is_that_for_a_sum_by_the_square_of_the_batch(rng):
    """Mnih et al. sum gradients over 32 transitions, with 0.01; the same step for their mean needs 0.01 / 32**2."""
    gradient: Any = jnp.asarray(1e-3 * rng.normal(size=50), dtype=jnp.float32)
    summed, mean = make_optimiser("rmsprop", 0.01), make_optimiser("rmsprop", 0.01 / 32**2)
    of_sum: Any = summed.update(32 * gradient, summed.init(gradient))[0]
    of_mean: Any = mean.update(gradient, mean.init(gradient))[0]
    np.testing.assert_allclose(of_sum, of_mean, rtol=1e-4)
    assert preset("dqn-nature", "dqn", "pong").optimiser_epsilon == 0.01 / 32**2


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_lanes_whose_weights_are_not_finite_are_found(bad):
    weights = np.ones((3, 4, 2), np.float32)
    weights[1, 3, 0] = bad
    tree = {"a": jnp.asarray(weights), "b": jnp.zeros((3, 5)), "c": jnp.zeros(3)}
    np.testing.assert_array_equal(finite_lanes(tree, 3), [True, False, True])
    one = {"a": jnp.asarray(weights[1]), "c": jnp.float32(0)}
    np.testing.assert_array_equal(finite_lanes(one, 1), [False])


# What is logged.


def test_masses_in_the_log_by_hand():
    head = make_head("s51", num_atoms=3, v_min=-1.0, v_max=1.0)
    outputs = np.array([[[0.5, -0.25, 1.0]], [[-0.5, -0.5, 1.5]], [[0.25, 0.25, 0.5]]])
    target = np.array([[[0.2, 0.3, 0.5]], [[-0.5, 0.5, 1.0]], [[0.0, 0.0, 0.0]]])
    learner, state = table(head, outputs, target)
    # Of state 0 the backup 0.5 + 0.9 z puts the atom 1 (mass .5 of 1) outside; of state 1, with -0.5, the atom -1
    # (-.5); with reward 0 nothing; after a termination all of it, which is one.
    batch = one_hot_batch([0, 1, 2, 0], [0] * 4, [0.5, -0.5, 0.0, 2.0], [0.9, 0.9, 0.9, 0.0], [0, 1, 1, 1], 3)
    _, info = learn(learner, state, jax.tree.map(lambda x: x[None], batch))
    np.testing.assert_allclose(info.mass, (1.25 + 0.5 + 1.0 + 1.25) / 4, rtol=1e-6)
    np.testing.assert_allclose(info.negative_mass, (0.25 + 1.0 + 0.0 + 0.25) / 4, rtol=1e-6)
    np.testing.assert_allclose(info.clipped_above, (0.5 + 0.0 + 0.0 + 1.0) / 4, rtol=1e-6)
    np.testing.assert_allclose(info.clipped_below, (0.0 - 0.5 + 0.0 + 0.0) / 4, rtol=1e-6)
    np.testing.assert_allclose(info.q_values, (0.5 + 2.0 + 0.25 + 0.5) / 4, rtol=1e-6)


def test_masses_in_the_log_are_those_of_the_last_update(rng):
    learner, batches = learner_of("s51", False), batches_of(rng)
    state = before = state_of(learner)
    outputs = np.zeros(0)
    for i in range(UPDATES):
        state, (_, outputs) = step(learner, state, jax.tree.map(lambda x, i=i: x[i], batches))
    _, info = learn(learner, before, batches)
    np.testing.assert_allclose(info.mass, np.asarray(outputs).sum(axis=-1).mean(), rtol=1e-4)
    np.testing.assert_allclose(info.negative_mass, np.maximum(-np.asarray(outputs), 0).sum(axis=-1).mean(), rtol=1e-4)


@pytest.mark.parametrize("name", ["dqn", "qr"])
def test_without_a_support_there_are_no_masses_to_log(name, rng):
    learner = learner_of(name, False)
    _, info = learn(learner, state_of(learner), batches_of(rng))
    assert np.isnan([info.mass, info.negative_mass, info.clipped_below, info.clipped_above]).all()
    assert np.isfinite([info.loss, info.q_values]).all()


@pytest.mark.parametrize(("name", "double_q"), [*((name, False) for name in HEADS), ("u51", True)])
def test_the_first_bad_update_is_named(name, double_q, rng):
    learner, batches = learner_of(name, double_q), batches_of(rng)
    batches = batches._replace(rewards=batches.rewards.at[2, 3].set(jnp.nan), weights=jnp.ones_like(batches.weights))
    _, info = learn(learner, state_of(learner), batches)
    assert info.first_bad == 2
    assert not np.isfinite(info.loss)


@pytest.mark.parametrize("double_q", [False, True])
def test_traced_once(double_q, rng):
    plain, calls = learner_of("u51", double_q), []

    def counted(function: Any) -> Any:
        return lambda params, seen: (calls.append(seen.shape), function(params, seen))[1]

    network = plain.network._replace(apply=counted(plain.network.apply), outputs=counted(plain.network.outputs))
    learner = Learner(plain.head, network, SGD, 0.05, double_q)
    state, _ = learn(learner, state_of(plain), batches_of(rng))
    first = len(calls)
    assert first > 0
    for _ in range(3):
        state, _ = learn(learner, learner.change_target(state), batches_of(rng))
    assert len(calls) == first
    if not double_q:
        assert calls[0] == (UPDATES * SIZE, INPUTS)  # all targets in one pass


# Policy evaluation. The walk's stationary distribution is (1, 2, 3, 2, 1) / 9 and every step has probability 1/2, so
# eighteen transitions, each as often as it should be, make a batch whose gradient is exact.

WALK = linear.examples.random_walk(5, 0.9)
FEATURES = {
    "fourier": linear.fourier(np.arange(5.0), 2),
    "no constant": linear.random_features(5, 2, seed=0),
}


def walk_batch(features: np.ndarray) -> Batch:
    distribution, times, rows = WALK.branches.next_distribution.toarray(), 18 * WALK.stationary_distribution(), []
    for branch, (state, reward) in enumerate(zip(WALK.branches.states, WALK.branches.rewards, strict=True)):
        for following in range(5):
            count = distribution[branch, following] * times[state]
            assert abs(count - round(count)) < 1e-9
            rows += [(state, reward, following)] * round(count)
    assert len(rows) == 18
    states, rewards, nexts = map(np.array, zip(*rows, strict=True))
    seen = jnp.asarray(features, dtype=jnp.float32)
    return Batch(
        observations=seen[states],
        actions=jnp.zeros(18, dtype=jnp.int32),
        rewards=jnp.asarray(rewards, dtype=jnp.float32),
        discounts=jnp.full(18, 0.9, dtype=jnp.float32),
        next_observations=seen[nexts],
        weights=jnp.ones(18, dtype=jnp.float32),
    )


def learned_masses(head: Any, features: np.ndarray, optimiser: Any, rates: np.ndarray) -> np.ndarray:
    """(S, K) after as many target networks as there are rates, twenty updates each."""
    network = make_network("linear", (features.shape[1],), 1, head.num_outputs)
    learner = Learner(head, network, optimiser, 1.0)
    batches = jax.tree.map(lambda x: jnp.broadcast_to(x, (20, *x.shape)), walk_batch(features))

    @jax.jit
    def run(state: LearnerState, rates: Any) -> LearnerState:
        def target_network(state: LearnerState, rate: Any) -> Any:
            state, info = learner.learn(
                learner.change_target(state)._replace(learning_rate=rate), batches, unroll=False
            )
            return state, info.first_bad

        return jax.lax.scan(target_network, state, rates)[0]

    state = run(learner.init(jax.random.key(0)), jnp.asarray(rates, dtype=jnp.float32))
    outputs = network.apply(state.params, jnp.asarray(features, dtype=jnp.float32))[:, 0]
    return np.asarray(head.distribution(outputs)[1])


@pytest.mark.parametrize("features", list(FEATURES))
@pytest.mark.parametrize(
    ("name", "options", "normalisation", "rate", "tolerance"),
    [
        ("s51", {"normalisation": "before"}, "before", 0.01, 1e-4),
        ("u51", {}, "affine", 0.3, 2e-6),
        ("u51", {"mode_exponent": 0.25}, "affine", 0.3, 2e-6),
    ],
    ids=["s51", "u51", "u51-scaled"],
)
def test_policy_evaluation_is_that_of_linear(name, options, normalisation, rate, tolerance, features):
    # Reached in float32: 8e-6 (s51, whose loss is badly conditioned) and 2e-7 (u51).
    head = make_head(name, num_atoms=21, v_min=-10.0, v_max=10.0, **options)
    found = learned_masses(head, FEATURES[features], SGD, np.full(1000, rate))
    exact = linear.evaluate(WALK, FEATURES[features], head.support, normalisation=normalisation)
    assert np.ptp(exact.masses) > 0.04  # not merely near zero or near even
    np.testing.assert_allclose(found, exact.masses, rtol=0, atol=tolerance)


def test_the_papers_normalisation_has_the_same_answer_with_the_constant_in_the_span():
    head = make_head("s51", num_atoms=21, v_min=-10.0, v_max=10.0)
    found = learned_masses(head, FEATURES["fourier"], SGD, np.full(1000, 0.01))
    for normalisation in ("after", "before"):
        exact = linear.evaluate(WALK, FEATURES["fourier"], head.support, normalisation=normalisation)
        np.testing.assert_allclose(found, exact.masses, rtol=0, atol=1e-4)


@pytest.mark.usefixtures("loose")
@pytest.mark.parametrize("name", ["c51", "l51"])
def test_the_tabular_distribution_is_the_projected_one(name):
    # Returns lie in [-10, 10], so nothing clips. Cross-entropy is smallest at the target, as is the Cramér distance.
    head = make_head(name, num_atoms=21, v_min=-10.0, v_max=10.0)
    rates = 0.3 * 10.0 ** (-3 * np.arange(1000) / 1000)
    found = learned_masses(head, linear.tabular(5), make_optimiser("adam", 1e-8), rates)
    exact = linear.evaluate(WALK, linear.tabular(5), head.support).masses
    np.testing.assert_allclose(exact, WALK.true_returns(head.support), rtol=0, atol=1e-10)
    np.testing.assert_allclose(found, exact, rtol=0, atol=3e-5)  # reached: 6e-6 (c51)
