"""One learner for every head: how actions are chosen, what the targets are, and updates."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal, NamedTuple, cast

import jax
import jax.numpy as jnp
import optax

from cramerl._checks import require_choice
from cramerl.deep import own_support
from cramerl.deep.heads import S51, AtomsHead, Head, LinearHead
from cramerl.deep.networks import Network, Params
from cramerl.deep.own_support import Clipped
from cramerl.deep.q_lambda import shares
from cramerl.deep.replay import Batch, Replay
from cramerl.measures import with_unit_mass
from cramerl.projections import project
from cramerl.supports import Support

Array = jax.Array


class LearnerState(NamedTuple):
    """What the next update needs.

    Attributes:
        params: weights of the network that acts and learns; with a head that has atoms, also where these lie,
            ``params["support"]``.
        target_params: weights of the target network.
        optimiser: state of the optimiser.
        learning_rate: () float32. It and the penalty are part of the state so that lanes of one program can differ.
        mass_penalty: () float32, of s51.
        clipped: what a support that finds itself needs; () for others.
    """

    params: Params
    target_params: Params
    optimiser: Any
    learning_rate: Array
    mass_penalty: Array
    clipped: Clipped | tuple[()] = ()


class LearnInfo(NamedTuple):
    """What the log reports about some updates.

    Attributes:
        loss: mean loss.
        q_values: mean value of the actions taken.
        mass: mean total mass of the predictions (last update); NaN where the head has no support.
        negative_mass: mean sum of the negative masses, as a positive number.
        clipped_below: mean mass of the next distribution that a backup clipped at the smallest atom; with Q(lambda), of
            the distributions that are added to the target, weighted by their shares of what is added.
        clipped_above: the same at the largest atom.
        lost_below: mean distance, in spacings, by which clipping at the smallest atom moves a backup; mass times way.
        lost_above: the same at the largest atom.
        first_bad: index of the first update whose loss was not finite, or -1.
    """

    loss: Array
    q_values: Array
    mass: Array
    negative_mass: Array
    clipped_below: Array
    clipped_above: Array
    lost_below: Array
    lost_above: Array
    first_bad: Array

    @property
    def clipped(self) -> tuple[Array, Array, Array, Array]:
        """What `own_support.with_batch` adds up."""
        return self.clipped_below, self.clipped_above, self.lost_below, self.lost_above


@cache
def make_optimiser(name: Literal["adam", "rmsprop"], epsilon: float) -> optax.GradientTransformation:
    """An optimiser whose steps still have to be multiplied by a learning rate.

    Args:
        name: "adam", or "rmsprop": centred, decay 0.95, without momentum, epsilon inside the root (DQN's).
        epsilon: as the published settings state it.
    """
    require_choice("optimiser", name, ("adam", "rmsprop"))
    return optax.scale_by_adam(eps=epsilon) if name == "adam" else optax.scale_by_stddev(decay=0.95, eps=epsilon)


@dataclass(frozen=True)
class Learner:
    """A head on a network with an optimiser.

    Attributes:
        head: what the outputs mean.
        network: outputs from observations.
        optimiser: see `make_optimiser`.
        learning_rate: step size.
        double_q: choose the next action with the learning network, value it with the target network.
        support: smallest and largest return of the atoms, for a head on atoms 0, 1, ..., K - 1; "own" if they are found
            and widened while learning; None for a head that has its own atoms or none.
        starts_at_zero: predict a return of zero before learning, not a uniform distribution.
        max_gradient_norm: a gradient of all weights with a larger norm is scaled down to it; 0 for never.
    """

    head: Head
    network: Network
    optimiser: optax.GradientTransformation
    learning_rate: float
    double_q: bool = False
    support: tuple[float, float] | Literal["own"] | None = None
    starts_at_zero: bool = False
    max_gradient_norm: float = 0.0

    def init(self, key: Array) -> LearnerState:
        """Initial weights; the target network starts as a copy."""
        params = self._with_support(self.network.init(key))
        copy = jax.tree.map(jnp.copy, params)
        penalty = self.head.mass_penalty if isinstance(self.head, S51) else 0.0
        rates = jnp.float32(self.learning_rate), jnp.float32(penalty)
        clipped = own_support.nothing_clipped(False) if self.support == "own" else ()
        return LearnerState(params, copy, self.optimiser.init(params), *rates, clipped)

    def _with_support(self, params: Params) -> Params:
        if self.support is None:
            return params
        head, count = self._atoms_head, self._atoms_head.support.num_atoms
        low, high = (0.0, count - 1.0) if self.support == "own" else self.support
        spacing = (high - low) / (count - 1)
        params = params | {"support": {"low": jnp.float32(low), "spacing": jnp.float32(spacing)}}
        if not self.starts_at_zero or self.support == "own":
            return params
        zero = project(head.support, jnp.full(1, -low / spacing, dtype=jnp.float32), jnp.ones(1, dtype=jnp.float32))
        return own_support.starting_at(head, params, zero)

    def find_support(self, state: LearnerState, replay: Replay, written: Array, discount: float) -> LearnerState:
        """Before the first update: place a support of its own where the returns in the replay are.

        A support that came with initial weights stays.
        """
        assert isinstance(state.clipped, Clipped)
        known, head = state.clipped.known, self._atoms_head
        found = own_support.find_support(head, state.params, *own_support.returns_seen(replay, written, discount))
        params = jax.tree.map(lambda old, new: jnp.where(known, old, new), state.params, found)
        # The target network too: its outputs would mean returns on other atoms.
        target = jax.tree.map(jnp.copy, params)
        return state._replace(params=params, target_params=target, clipped=own_support.nothing_clipped(True))

    def change_target(self, state: LearnerState) -> LearnerState:
        """Copy the learning network into the target network, after widening a support of its own if that is due.

        The copy is real: a loop that donates the state to a compiled program cannot pass one buffer twice.
        """
        if isinstance(state.clipped, Clipped):
            wider = own_support.widen(self._atoms_head, state.params, state.optimiser, state.clipped)
            clipped = own_support.nothing_clipped(state.clipped.known)
            state = state._replace(params=wider[0], optimiser=wider[1], clipped=clipped)
        return state._replace(target_params=jax.tree.map(jnp.copy, state.params))

    @property
    def _atoms_head(self) -> AtomsHead:
        assert self.head.support is not None
        return cast(AtomsHead, self.head)

    def act(
        self, params: Params, observations: Array, epsilon: Array, key: Array, among: tuple[int, Array] | None = None
    ) -> Array:
        """Epsilon-greedy actions (N,) int32.

        Args:
            params: of the network.
            observations: ``(N, *shape)``.
            epsilon: probability of a random action.
            key: PRNG key.
            among: (number of all environments, index of the first of these) if these are only some of a run's: each
                then gets the random numbers it would get among all, however they are grouped.
        """
        greedy = jnp.argmax(self.head.values(self.network.apply(params, observations)), axis=-1).astype(jnp.int32)
        explore_key, action_key = jax.random.split(key)
        num_actions = jax.eval_shape(self.network.apply, params, observations).shape[1]
        size = len(greedy) if among is None else among[0]
        explore = jax.random.uniform(explore_key, (size,)) < epsilon
        random = jax.random.randint(action_key, (size,), 0, num_actions, dtype=jnp.int32)
        if among is not None:
            explore, random = (jax.lax.dynamic_slice_in_dim(x, among[1], len(greedy)) for x in (explore, random))
        return jnp.where(explore, random, greedy)

    def targets(self, state: LearnerState, batch: Batch) -> tuple[Array, Array]:
        """Targets (B, ...) for a flat batch, and the outputs (B, O) of the next actions they were made from.

        With Q(lambda) these outputs are (B, n, 2, O): of the best action and of the action taken, after each step.
        """
        shape, seen = batch.rewards.shape, batch.next_observations
        seen = seen.reshape((-1, *seen.shape[len(shape) :]))
        next_outputs = self.network.apply(state.target_params, seen)
        judge = self.network.apply(state.params, seen) if self.double_q else next_outputs
        best = jnp.argmax(self.head.values(judge), axis=-1)
        chosen, rewards = _take_actions(next_outputs, best), in_spacings(state.target_params, batch)
        if not batch.terms:
            return self.head.target(rewards, batch.discounts, chosen), chosen
        if not isinstance(self.head, LinearHead):
            raise ValueError(f"q_lambda needs a head whose target is linear, got {type(self.head).__name__}")
        taken = _take_actions(next_outputs, batch.terms.actions.reshape(-1))
        chosen = jnp.stack([chosen, taken], axis=1).reshape((*shape, 2, -1))
        return self.head.sum_target(rewards, batch.discounts, batch.terms.coefficients, chosen), chosen

    def update(self, state: LearnerState, batch: Batch, target: Array) -> tuple[LearnerState, tuple[Array, Array]]:
        """One step of the optimiser; also the loss () and the outputs (B, O) before it."""
        return self._update(state, batch, self.network.prepare(batch.observations), target)

    def _update(
        self, state: LearnerState, batch: Batch, inputs: Array, target: Array
    ) -> tuple[LearnerState, tuple[Array, Array]]:
        head = self.head
        if isinstance(head, S51):
            head = dataclasses.replace(head, mass_penalty=state.mass_penalty)

        def mean_loss(params: Params) -> tuple[Array, Array]:
            outputs = _take_actions(self.network.outputs(params, inputs), batch.actions)
            losses = head.loss(outputs, jax.lax.stop_gradient(target))
            return jnp.sum(batch.weights * losses) / jnp.maximum(jnp.sum(batch.weights), 1.0), outputs

        (loss, outputs), gradient = jax.value_and_grad(mean_loss, has_aux=True)(state.params)
        if self.max_gradient_norm:
            # Not part of the optimiser, whose state a support that widens changes.
            gradient, _ = optax.clip_by_global_norm(self.max_gradient_norm).update(gradient, optax.EmptyState())
        direction, optimiser = self.optimiser.update(gradient, state.optimiser, state.params)
        params = jax.tree.map(lambda p, d: p - state.learning_rate * d, state.params, direction)
        return state._replace(params=params, optimiser=optimiser), (loss, outputs)

    def learn(self, state: LearnerState, batches: Batch, *, unroll: bool) -> tuple[LearnerState, LearnInfo]:
        """Several updates, one for each entry of the leading axis of ``batches``, with one target network.

        What does not change between updates is computed in one pass for all of them: the part of the network without
        weights and, without double Q-learning, the targets.

        Args:
            state: before the updates.
            batches: (U, B, ...), U updates of B transitions.
            unroll: compile the updates one after another instead of as a loop. On a CPU XLA runs a convolution inside a
                loop many times slower; unrolling takes longer to compile.
        """
        flat = jax.tree.map(lambda x: x.reshape((-1, *x.shape[2:])), batches)
        shape = batches.weights.shape
        found = (self.network.prepare(flat.observations), *(() if self.double_q else self.targets(state, flat)))
        inputs, *found = (x.reshape((*shape, *x.shape[1:])) for x in found)
        small = batches._replace(observations=(), next_observations=batches.next_observations if self.double_q else ())

        def step(state: LearnerState, item: Any) -> tuple[LearnerState, tuple[Array, ...]]:
            batch, inputs, found = item
            target, chosen = found or self.targets(state, batch)
            state, (loss, outputs) = self._update(state, batch, inputs, target)
            values = in_returns(state.params, self.head.values(outputs))
            return state, (loss, jnp.mean(values), outputs, chosen)

        items = (small, inputs, found)
        if unroll:
            results = []
            for i in range(batches.weights.shape[0]):
                state, result = step(state, jax.tree.map(lambda x, i=i: x[i], items))
                results.append(result)
            losses, values, outputs, chosen = jax.tree.map(lambda *x: jnp.stack(x), *results)
        else:
            state, (losses, values, outputs, chosen) = jax.lax.scan(step, state, items)
        batch, outputs, chosen = (jax.tree.map(lambda x: x[-1], tree) for tree in (small, outputs, chosen))
        info = self._info(losses, values, state.target_params, batch, outputs, chosen)
        if isinstance(state.clipped, Clipped):
            state = state._replace(clipped=own_support.with_batch(state.clipped, info.clipped))
        return state, info

    def _info(
        self, losses: Array, values: Array, target_params: Params, batch: Batch, outputs: Array, chosen: Array
    ) -> LearnInfo:
        bad = ~jnp.isfinite(losses)
        first_bad = jnp.where(jnp.any(bad), jnp.argmax(bad), -1)
        mass = negative = jnp.float32(jnp.nan)
        below, above, lost_below, lost_above = (mass,) * 4
        if self.head.support is not None:
            masses = self.head.distribution(outputs)[1]
            mass = jnp.mean(jnp.sum(masses, axis=-1))
            negative = -jnp.mean(jnp.sum(jnp.minimum(masses, 0.0), axis=-1))
            below, above, lost_below, lost_above = self._clipped(self.head.support, target_params, batch, chosen)
        return LearnInfo(
            jnp.mean(losses), jnp.mean(values), mass, negative, below, above, lost_below, lost_above, first_bad
        )

    def _clipped(self, support: Support, target_params: Params, batch: Batch, chosen: Array) -> tuple[Array, ...]:
        """What backups of ``chosen`` put below and above the support: mean masses, then masses times their way back."""
        atoms, masses = self.head.distribution(chosen)
        masses = with_unit_mass(support, masses)
        if batch.terms:
            masses = jnp.sum(shares(batch.terms.coefficients)[..., None] * masses, axis=-2)
            atoms = atoms[..., 0, :]
        moved = in_spacings(target_params, batch)[..., None] + batch.discounts[..., None] * atoms
        slack = 1e-3 * (support.v_max - support.v_min)  # rounding alone must not count
        # Signed masses are summed with their signs: noise on both sides of zero is not clipped mass.
        ways = [(support.v_min - moved), (moved - support.v_max)]
        spacing, axes = float(support.spacings.mean()), tuple(range(1, masses.ndim))
        parts = [jnp.where(way > slack, masses, 0.0) for way in ways]
        parts += [part * way / spacing for part, way in zip(parts, ways, strict=True)]
        return tuple(jnp.mean(jnp.sum(part, axis=axes)) for part in parts)


@partial(jax.jit, static_argnames="lanes")
def finite_lanes(params: Params, lanes: int) -> Array:
    """Whether the weights of each lane are finite, (lanes,), found on the device: only the answers are copied."""
    each = [jnp.all(jnp.isfinite(leaf).reshape(lanes, -1), axis=1) for leaf in jax.tree.leaves(params)]
    return jnp.all(jnp.stack(each), axis=0)


def in_spacings(params: Params, batch: Batch) -> Array:
    """Rewards of a batch as a head on atoms 0, 1, ..., K - 1 sees them.

    With z = low + spacing * i, the backup r + discount * z is that of (r - (1 - discount) * low) / spacing on i.
    """
    if "support" not in params:
        return batch.rewards
    low, spacing = params["support"]["low"], params["support"]["spacing"]
    return (batch.rewards - (1.0 - batch.discounts) * low) / spacing


def in_returns(params: Params, places: Array) -> Array:
    """Values or atoms of a head as returns, if it is on atoms 0, 1, ..., K - 1; see `in_spacings`."""
    if "support" not in params:
        return places
    return params["support"]["low"] + params["support"]["spacing"] * places


def with_params(state: LearnerState, params: Params) -> LearnerState:
    """Start both networks from given weights; if the state has lanes, each of them."""
    params = jax.tree.map(
        lambda old, new: jnp.broadcast_to(jnp.asarray(new, old.dtype), old.shape), state.params, params
    )
    if isinstance(state.clipped, Clipped):  # these weights have a support
        state = state._replace(clipped=state.clipped._replace(known=jnp.ones_like(state.clipped.known)))
    return state._replace(params=params, target_params=jax.tree.map(jnp.copy, params))


def _take_actions(outputs: Array, actions: Array) -> Array:
    """(B, A, O), (B,) -> (B, O). With a mask, because the gradient of a lookup is a scatter: slow on a GPU."""
    mask = actions[:, None] == jnp.arange(outputs.shape[1], dtype=actions.dtype)[None]
    return jnp.sum(jnp.where(mask[..., None], outputs, jnp.zeros_like(outputs)), axis=1)
