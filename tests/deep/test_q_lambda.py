"""Q(lambda): the code's targets, averaged over every path with its probability, against the operator written out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from oracles import project_by_loop

from cramerl import Support, rearranged_distribution, with_unit_mass
from cramerl.deep import replay as replays
from cramerl.deep.heads import make_head
from cramerl.deep.learner import Learner, LearnerState
from cramerl.deep.networks import make_network
from cramerl.deep.q_lambda import Terms, coefficients, shares
from cramerl.deep.replay import FIRST, LAST, TERMINATED, Batch, Replay

STATES, ACTIONS, STEPS = 3, 2, 3
ATOMS = Support.uniform(-4.0, 6.0, 11)
LAMBDA, GREEDY = 0.7, 0.6
SGD = optax.identity()
Measure = list[tuple[float, float]]  # places and masses
Path = list[tuple[int, int, float, bool]]  # state, action, reward, whether it terminates


@dataclass(frozen=True, eq=False)
class Process:
    """Outcomes (probability, reward, next state or None) of each state and action, and how actions were taken there."""

    outcomes: dict[tuple[int, int], list[tuple[float, float, int | None]]]
    behaviour: np.ndarray
    discount: float


LOOPS = Process(
    {
        (0, 0): [(1.0, 0.5, 1)],
        (0, 1): [(0.6, -1.0, 2), (0.4, 2.0, 0)],
        (1, 0): [(0.3, 1.0, None), (0.7, 0.0, 2)],
        (1, 1): [(1.0, 0.0, 0)],
        (2, 0): [(1.0, 1.5, None)],
        (2, 1): [(0.5, -0.5, 1), (0.5, 0.25, 2)],
    },
    np.array([[0.3, 0.7], [0.8, 0.2], [0.45, 0.55]]),
    0.9,
)
# Three states in a row, whole rewards, no discount: every return is an atom.
ROW = Process(
    {
        (0, 0): [(0.5, 1.0, 1), (0.5, -1.0, 1)],
        (0, 1): [(1.0, 0.0, 2)],
        (1, 0): [(0.25, 2.0, 2), (0.75, 0.0, None)],
        (1, 1): [(1.0, -1.0, 2)],
        (2, 0): [(0.5, 3.0, None), (0.5, -2.0, None)],
        (2, 1): [(1.0, 0.0, None)],
    },
    np.array([[0.3, 0.7], [0.6, 0.4], [0.2, 0.8]]),
    1.0,
)
STARTS = sorted(LOOPS.outcomes)


# The operator, with nothing cancelled: eta, plus what each step adds and takes away.


def operator(process: Process, policy: np.ndarray, eta: dict[Any, Measure], q_lambda: float) -> dict[Any, Measure]:
    def moved(measure: Measure, total: float, factor: float, weight: float) -> Measure:
        return [(total + factor * place, weight * mass) for place, mass in measure]

    def add(out: Measure, state: int, action: int, step: int, total: float, weight: float) -> None:
        here, after = process.discount**step, process.discount ** (step + 1)
        out += moved(eta[state, action], total, here, -weight)
        for probability, reward, following in process.outcomes[state, action]:
            seen, share = total + here * reward, weight * probability
            if following is None:
                out.append((seen, share))
                continue
            for b in range(ACTIONS):
                out += moved(eta[following, b], seen, after, share * policy[following, b])
                if step + 1 < STEPS:
                    chance = process.behaviour[following, b]
                    add(out, following, b, step + 1, seen, share * q_lambda * chance)

    result = {}
    for start in STARTS:
        result[start] = list(eta[start])
        add(result[start], *start, 0, 0.0, 1.0)
    return result


def on_atoms(measure: Measure, support: Support = ATOMS) -> np.ndarray:
    places, masses = map(np.array, zip(*measure, strict=True))
    return project_by_loop(support, places, masses)


# Every path of the process, each in an environment of its own.


def paths(process: Process, state: int, action: int, left: int = STEPS) -> Iterator[tuple[float, Path]]:
    """Probability and steps; the step after the last has the action that was taken there, and nothing came of it."""
    if left == 0:
        yield 1.0, [(state, action, 99.0, False)]
        return
    for probability, reward, following in process.outcomes[state, action]:
        if following is None:
            yield probability, [(state, action, reward, True)]
            continue
        for b in range(ACTIONS):
            for chance, rest in paths(process, following, b, left - 1):
                share = probability * process.behaviour[following, b] * chance
                yield share, [(state, action, reward, False), *rest]


class Drawn(NamedTuple):
    """A batch with each path once, and the starts and probabilities of the paths."""

    batch: Batch
    starts: list[tuple[int, int]]
    chances: np.ndarray


@cache
def every_path(process: Process, q_lambda: float, greedy: float) -> Drawn:
    found = [(start, chance, path) for start in STARTS for chance, path in paths(process, *start)]
    assert sum(chance for _, chance, _ in found) == pytest.approx(len(STARTS))
    rows, size = STEPS + 2, len(found)
    frames, flags = np.zeros((rows, size, STATES), np.float32), np.zeros((rows, size), np.uint8)
    actions, rewards = np.ones((rows, size), np.int32), np.full((rows, size), 77.0, np.float32)
    frames[..., 0] = 1
    flags[0] = FIRST
    for column, (_, _, path) in enumerate(found):
        for row, (state, action, reward, terminated) in enumerate(path):
            frames[row, column] = np.eye(STATES)[state]
            actions[row, column], rewards[row, column] = action, reward
            flags[row, column] |= TERMINATED * terminated
        if path[-1][3]:
            flags[len(path), column] = LAST
            flags[len(path) + 1 :, column] = FIRST
    # One slot more, which a row that is being written would take.
    ring = Replay(*(jnp.asarray(np.concatenate([x, x[:1]])) for x in (frames, actions, rewards, flags)))

    @jax.jit
    def draw(ring: Replay) -> Any:
        options = {"stack": 1, "n_step": STEPS, "discount": process.discount}
        options |= {"q_lambda": q_lambda, "q_lambda_greedy": greedy}
        drawn = replays.draw(jax.random.key(0), ring, jnp.int32(rows), (20 * size,), **options)
        return drawn.window, replays.read_batch(ring, drawn)

    window, batch = draw(ring)
    slots, envs = np.asarray(window.slots)[:, 0], np.asarray(window.envs)[:, 0]
    one = {env: i for i, (slot, env) in enumerate(zip(slots, envs, strict=True)) if slot == 0}
    assert sorted(one) == list(range(size))  # none was missed
    batch = jax.tree.map(lambda x: x[np.array([one[i] for i in range(size)])], batch)
    return Drawn(batch, [start for start, _, _ in found], np.array([chance for _, chance, _ in found]))


def mean_targets(drawn: Drawn, targets: Any) -> dict[tuple[int, int], np.ndarray]:
    targets = np.asarray(targets, dtype=float)
    which = {start: [i for i, one in enumerate(drawn.starts) if one == start] for start in STARTS}
    return {start: np.tensordot(drawn.chances[rows], targets[rows], axes=1) for start, rows in which.items()}


def table(head: Any, outputs: np.ndarray, online: np.ndarray | None = None, scaled: bool = False) -> Any:
    """A learner whose target network's outputs (S, A, O) are given; and those of the learning network."""
    given = [jnp.asarray(x, jnp.float32) for x in (outputs if online is None else online, outputs)]
    network = make_network("linear", (STATES,), ACTIONS, outputs.shape[-1])
    learner = Learner(head, network, SGD, 0.0, double_q=online is not None)
    params: list[Any] = [{"outputs": {"weights": x.reshape(STATES, -1)}} for x in given]
    if scaled:
        support = {"low": jnp.float32(ATOMS.v_min), "spacing": jnp.float32(ATOMS.spacings[0])}
        params = [one | {"support": support} for one in params]
    penalty = jnp.float32(getattr(head, "mass_penalty", 0.0))
    return learner, LearnerState(params[0], params[1], SGD.init(params[0]), jnp.float32(0.0), penalty)


def greedy_policy(values: Any) -> np.ndarray:
    return np.eye(ACTIONS)[np.argmax(values, axis=-1)]


def measures(support: Support, masses: Any) -> dict[tuple[int, int], Measure]:
    masses = np.asarray(masses, dtype=float)
    return {start: list(zip(support.atoms.tolist(), masses[start].tolist(), strict=True)) for start in STARTS}


SIGNED = {
    "s51 before": ("s51", {"normalisation": "before"}, False),
    "s51 after": ("s51", {}, False),
    "u51": ("u51", {}, False),
    "u51 rearranged": ("u51", {"next_distribution": "rearranged"}, False),
    "u51, double Q, atoms numbered": ("u51", {}, True),
}


@pytest.mark.parametrize("greedy", [1.0, GREEDY])
@pytest.mark.parametrize("case", SIGNED)
def test_the_mean_target_is_the_projected_operator(case, greedy, rng):
    name, options, double_and_scaled = SIGNED[case]
    ends = {"v_min": 0.0, "v_max": 10.0} if double_and_scaled else {"v_min": ATOMS.v_min, "v_max": ATOMS.v_max}
    head = make_head(name, num_atoms=11, **ends, **options)
    outputs, online = rng.normal(size=(2, STATES, ACTIONS, head.num_outputs))
    if case == "s51 after":  # a total other than one is corrected once, for the whole sum
        outputs = np.asarray(with_unit_mass(ATOMS, outputs))
    learner, state = table(head, outputs, online if double_and_scaled else None, double_and_scaled)
    drawn = every_path(LOOPS, LAMBDA, greedy)
    targets, chosen = jax.jit(learner.targets)(state, drawn.batch)
    assert chosen.shape == (len(drawn.starts), STEPS, 2, head.num_outputs)
    found = mean_targets(drawn, head.distribution(targets)[1])

    masses = np.asarray(head.distribution(jnp.asarray(outputs, jnp.float32))[1], dtype=float)
    judged = online if double_and_scaled else outputs
    best = greedy_policy(head.values(jnp.asarray(judged, jnp.float32)))
    if name == "s51":
        masses = with_unit_mass(ATOMS, masses)
    if "rearranged" in case:
        masses = rearranged_distribution(ATOMS, masses)
    policy = greedy * best + (1 - greedy) * LOOPS.behaviour
    assert np.abs(best - LOOPS.behaviour).sum(axis=1).min() > 0.3  # off-policy everywhere
    expected = operator(LOOPS, policy, measures(ATOMS, masses), LAMBDA)
    for start in STARTS:
        np.testing.assert_allclose(found[start], on_atoms(expected[start]), rtol=0, atol=2e-5)
        np.testing.assert_allclose(found[start].sum(), 1, rtol=0, atol=1e-5)


@pytest.mark.parametrize("greedy", [1.0, GREEDY])
def test_of_means_it_is_scalar_q_lambda(greedy, rng):
    values = rng.normal(size=(STATES, ACTIONS))
    learner, state = table(make_head("dqn"), values[..., None])
    drawn = every_path(LOOPS, LAMBDA, greedy)
    found = mean_targets(drawn, jax.jit(learner.targets)(state, drawn.batch)[0])
    policy = greedy * greedy_policy(values) + (1 - greedy) * LOOPS.behaviour
    expected = operator(LOOPS, policy, {start: [(values[start], 1.0)] for start in STARTS}, LAMBDA)
    for start in STARTS:
        np.testing.assert_allclose(found[start], sum(z * m for z, m in expected[start]), rtol=0, atol=1e-5)


@pytest.mark.parametrize("greedy", [1.0, GREEDY])
def test_the_distribution_of_the_target_policy_is_left_as_it_is(greedy):
    """On a process whose returns are atoms, solved from its end backwards."""
    exact, policy = np.zeros((STATES, ACTIONS, 11)), np.zeros((STATES, ACTIONS))
    for state in reversed(range(STATES)):
        for action in range(ACTIONS):
            for probability, reward, following in ROW.outcomes[state, action]:
                rest = on_atoms([(0.0, 1.0)]) if following is None else policy[following] @ exact[following]
                exact[state, action] += probability * np.roll(rest, int(reward))
        best = greedy_policy(exact[state] @ ATOMS.atoms)
        policy[state] = greedy * best + (1 - greedy) * ROW.behaviour[state]
    assert np.all(exact >= 0)
    assert np.ptp(exact) > 0.9
    head = make_head("s51", num_atoms=11, v_min=ATOMS.v_min, v_max=ATOMS.v_max)
    learner, state = table(head, exact)
    drawn = every_path(ROW, LAMBDA, greedy)
    targets = jax.jit(learner.targets)(state, drawn.batch)[0]
    assert np.min(targets) < -0.05  # single targets are signed, their mean is proper
    found = mean_targets(drawn, targets)
    for start in STARTS:
        np.testing.assert_allclose(found[start], exact[start], rtol=0, atol=1e-6)


def test_predictions_get_closer_by_the_factor_that_is_proved(rng):
    """Mean targets of pairs of predictions with one greedy policy; the bound is that of docs/mathematics.md."""
    q_lambda, greedy, root = 0.3, 0.1, np.sqrt(LOOPS.discount)
    head = make_head("u51", num_atoms=11, v_min=ATOMS.v_min, v_max=ATOMS.v_max)
    drawn, ratios = every_path(LOOPS, q_lambda, greedy), []
    learner, state = table(head, np.zeros((STATES, ACTIONS, 10)))
    targets = jax.jit(lambda state: learner.targets(state, drawn.batch)[0])
    for _ in range(30):
        first = rng.normal(size=(STATES, ACTIONS, 10))
        other = first + 0.1 * rng.normal(size=first.shape)
        found, best = [], []
        for outputs in (first, other):
            weights = {"outputs": {"weights": jnp.asarray(outputs.reshape(STATES, -1), jnp.float32)}}
            found.append(mean_targets(drawn, targets(state._replace(target_params=weights))))
            best.append(greedy_policy(head.values(jnp.asarray(outputs, jnp.float32))))
        if np.array_equal(*best):
            # The Cramér distance is that of the outputs, on unit spacing.
            after = max(np.linalg.norm(found[0][start] - found[1][start]) for start in STARTS)
            mismatch = greedy * np.abs(best[0] - LOOPS.behaviour).sum(axis=1).max()
            powers = (q_lambda * root) ** np.arange(STEPS)
            factor = root * ((1 - q_lambda + q_lambda * mismatch) * powers[:-1].sum() + powers[-1])
            assert factor < 1
            ratios.append(after / np.linalg.norm(first - other, axis=-1).max() / factor)
    assert len(ratios) > 20
    assert 0.5 < max(ratios) < 1


# Special cases.


def steps_made(*lengths: int) -> Any:
    return jnp.asarray(np.arange(STEPS) < np.array(lengths)[:, None])


def test_coefficients_by_hand():
    made = steps_made(3, 2, 1, 3)
    acted = jnp.asarray([[1, 1, 1], [1, 0, 0], [0, 0, 0], [1, 1, 0]], dtype=bool)
    best, taken = np.moveaxis(np.asarray(coefficients(made, acted, 0.5, 0.75)), -1, 0)
    np.testing.assert_allclose(best, [[0.75, 0.375, 0.1875], [0.75, 0.5, 0], [1, 0, 0], [0.75, 0.375, 0.25]])
    np.testing.assert_allclose(taken, [[-0.25, -0.125, 0.0625], [-0.25, 0, 0], [0, 0, 0], [-0.25, -0.125, 0]])
    np.testing.assert_allclose((best + taken).sum(axis=1), 1)


def test_shares_are_of_what_is_added():
    given = jnp.asarray([[[0.75, -0.25], [0.5, 0.25]], [[1.0, -0.5], [0.5, 0.0]], [[0, 0], [0, 0]]], jnp.float32)
    expected = [[[0.5, 0], [1 / 3, 1 / 6]], [[2 / 3, 0], [1 / 3, 0]], [[0, 0], [0, 0]]]
    np.testing.assert_allclose(shares(given), expected, rtol=1e-6)


def outputs_of(name: str, rng: np.random.Generator) -> Any:
    head: Any = make_head(name, num_atoms=7, v_min=-3.0, v_max=3.0)
    shape = (5, STEPS)
    rewards, discounts = (jnp.asarray(rng.random(shape), jnp.float32) for _ in range(2))
    return head, rewards, discounts, jnp.asarray(rng.normal(size=(*shape, 2, head.num_outputs)), jnp.float32)


LINEAR = ["dqn", "s51", "u51", "l51"]


@pytest.mark.parametrize("name", LINEAR)
def test_lambda_zero_is_the_one_step_target(name, rng):
    head, rewards, discounts, outputs = outputs_of(name, rng)
    made = steps_made(3, 3, 2, 1, 3)
    found = head.sum_target(rewards, discounts, coefficients(made, made, 0.0, 1.0), outputs)
    expected = head.target(rewards[:, 0], discounts[:, 0], outputs[:, 0, 0])
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("name", LINEAR)
def test_lambda_one_without_greed_is_the_n_step_target_of_the_actions_taken(name, rng):
    head, rewards, discounts, outputs = outputs_of(name, rng)
    lengths = np.array([3, 3, 2, 1, 3])
    made, last = steps_made(*lengths), lengths - 1
    acted = made.at[np.array([2, 3]), last[2:4]].set(False)  # two ended before the last step
    found = head.sum_target(rewards, discounts, coefficients(made, acted, 1.0, 0.0), outputs)
    each = np.arange(5)
    action = np.array([1, 1, 0, 0, 1])  # the best one where none was taken
    expected = head.target(rewards[each, last], discounts[each, last], outputs[each, last, action])
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6)


def test_heights_of_l51_are_cut():
    """Far-away distributions: -0.5 of one and 1.5 of the other have heights from -0.5 to 1.5."""
    head: Any = make_head("l51", num_atoms=5, v_min=0.0, v_max=4.0)
    low, high = (head.outputs_of(jnp.asarray(masses, jnp.float32)) for masses in ([0, 1, 0, 0, 0], [0, 0, 0, 1, 0]))
    outputs = jnp.stack([high, low])[None]
    zeros, ones = jnp.zeros(1, jnp.float32), jnp.ones(1, jnp.float32)
    for best, taken, expected in ((1.5, -0.5, [0, 0, 0, 1, 0]), (0.5, 0.5, [0, 0.5, 0, 0.5, 0])):
        target = head.sum_target(zeros, ones, jnp.asarray([[best, taken]], jnp.float32), outputs)
        np.testing.assert_allclose(target, expected, rtol=0, atol=2e-3)
        assert np.all(np.cumsum(target) >= 0)
        assert np.all(np.cumsum(target) <= 1 + 1e-6)


# Learning.


def batches_of(rng: np.random.Generator, updates: int, size: int) -> Batch:
    shape = (updates, size)
    made = jnp.asarray(np.arange(STEPS) < rng.integers(1, STEPS + 1, (*shape, 1)))
    return Batch(
        observations=jnp.asarray(rng.normal(size=(*shape, STATES)), jnp.float32),
        actions=jnp.asarray(rng.integers(0, ACTIONS, shape), jnp.int32),
        rewards=jnp.asarray(rng.normal(size=(*shape, STEPS)), jnp.float32),
        discounts=jnp.asarray(rng.choice([0.0, 0.9], (*shape, STEPS)), jnp.float32),
        next_observations=jnp.asarray(rng.normal(size=(*shape, STEPS, STATES)), jnp.float32),
        weights=jnp.ones(shape, jnp.float32),
        terms=Terms(
            jnp.asarray(rng.integers(0, ACTIONS, (*shape, STEPS)), jnp.int32), coefficients(made, made, LAMBDA, GREEDY)
        ),
    )


@pytest.mark.parametrize("double_q", [False, True])
def test_learning_is_one_update_after_the_other(double_q, rng):
    head = make_head("u51", num_atoms=7, v_min=-3.0, v_max=3.0)
    network = make_network("mlp", (STATES,), ACTIONS, head.num_outputs, hidden_units=(8,))
    learner, batches = Learner(head, network, SGD, 0.05, double_q), batches_of(rng, 3, 4)
    state = learner.init(jax.random.key(0))._replace(target_params=network.init(jax.random.key(1)))
    update = jax.jit(lambda state, batch: learner.update(state, batch, learner.targets(state, batch)[0])[0])
    expected = state
    for i in range(3):
        expected = update(expected, jax.tree.map(lambda x, i=i: x[i], batches))
    found, info = jax.jit(lambda *given: learner.learn(*given, unroll=False))(state, batches)
    for x, y in zip(jax.tree.leaves(found.params), jax.tree.leaves(expected.params), strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=1e-5)
    assert np.all(np.isfinite(info))


def test_clipped_mass_is_that_of_what_is_added(rng):
    head = make_head("s51", num_atoms=3, v_min=-1.0, v_max=1.0)
    outputs = np.array([[[0.2, 0.3, 0.5], [0.6, 0.2, 0.2]]] * STATES)
    learner, state = table(head, outputs)
    batch: Batch = jax.tree.map(lambda x: x[0, :1], batches_of(rng, 1, 1))
    seen = jnp.broadcast_to(jnp.eye(STATES, dtype=jnp.float32)[0], (1, STEPS, STATES))
    # With reward 0.5 the largest atom goes beyond, with -0.5 the smallest; the third is added to nothing.
    batch = batch._replace(
        observations=seen[:, 0],
        next_observations=seen,
        rewards=jnp.asarray([[0.5, -0.5, 9.0]], jnp.float32),
        discounts=jnp.full((1, STEPS), 0.9, jnp.float32),
        terms=Terms(jnp.ones((1, STEPS), jnp.int32), jnp.asarray([[[0.75, -0.25], [0.5, 0.25], [0, -0.25]]])),
    )
    batches = jax.tree.map(lambda x: x[None], batch)
    _, info = jax.jit(lambda *given: learner.learn(*given, unroll=True))(state, batches)
    np.testing.assert_allclose(info.clipped_above, 0.5 * 0.5, rtol=1e-6)
    np.testing.assert_allclose(info.clipped_below, 0.2 / 3 + 0.6 / 6, rtol=1e-6)


def test_a_head_whose_target_is_not_linear_is_refused(rng):
    head = make_head("c51", num_atoms=3, v_min=-1.0, v_max=1.0)
    learner, state = table(head, np.zeros((STATES, ACTIONS, 3)))
    batch: Batch = jax.tree.map(lambda x: x[0], batches_of(rng, 1, 2))
    with pytest.raises(ValueError, match="q_lambda needs a head whose target is linear, got C51"):
        learner.targets(state, batch)
