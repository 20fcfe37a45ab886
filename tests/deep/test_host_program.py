"""The compiled functions of the host loop: what an accelerator's options for the compiler change, which is nothing."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cramerl.deep.envs.base import EnvSpec
from cramerl.deep.heads import make_head
from cramerl.deep.host_program import HostProgram, compiler_options
from cramerl.deep.learner import Learner, make_optimiser
from cramerl.deep.networks import make_network
from cramerl.deep.replay import Batch
from cramerl.deep.schedule import Schedule

UPDATES, SIZE, ACTIONS = 8, 16, 3
SPEC = EnvSpec("Toy-v0", "gymnasium", ACTIONS, (10, 10, 4), "float32")
SCHEDULE = Schedule(
    num_envs=4,
    update_period_steps=4,
    batch_size=SIZE,
    min_replay_steps=64,
    replay_steps=256,
    target_period_steps=64,
    exploration_final=0.1,
    exploration_decay_steps=100,
    discount=0.99,
    n_step=1,
    clip_rewards=False,
)


def batches_of(rng: np.random.Generator) -> Batch:
    def floats(*shape: int) -> Any:
        return jnp.asarray(rng.normal(size=(UPDATES, SIZE, *shape)), dtype=jnp.float32)

    return Batch(
        observations=floats(*SPEC.frame_shape),
        actions=jnp.asarray(rng.integers(0, ACTIONS, (UPDATES, SIZE)), dtype=jnp.int32),
        rewards=floats(),
        discounts=jnp.full((UPDATES, SIZE), 0.99, dtype=jnp.float32),
        next_observations=floats(*SPEC.frame_shape),
        weights=jnp.ones((UPDATES, SIZE), dtype=jnp.float32),
    )


def test_a_cpu_gets_no_options():
    if jax.default_backend() == "cpu":
        assert compiler_options() is None


@pytest.mark.gpu
@pytest.mark.parametrize("agent", ["c51", "s51", "l51"])
def test_cuda_graphs_do_not_change_the_weights(agent, rng):
    """Updates with and without the options, in full float32.

    The two programs are tuned apart and may add in another order, so the weights are compared within 1e-5, a
    thousandth of what the updates change. An update that was left out, or ran with stale numbers, is far beyond that.
    """
    if jax.default_backend() != "gpu":
        pytest.skip("needs a GPU")
    head = make_head(agent, num_atoms=11, v_min=0.0, v_max=10.0)
    network = make_network("minatar", SPEC.observation_shape, ACTIONS, head.num_outputs)
    learner = Learner(head, network, make_optimiser("adam", 1e-2), 0.01, support=(-3.0, 3.0))
    program = HostProgram(learner, SCHEDULE, SPEC, frames_on_host=True, updates_per_call=UPDATES)

    def update(state: Any, batches: Batch) -> Any:
        return learner.learn(state, batches, unroll=False)[0]

    assert compiler_options()
    with jax.default_matmul_precision("highest"), jax.numpy_dtype_promotion("standard"):
        state, batches = program.init(jax.random.key(0)), batches_of(rng)
        found, plain = (jax.jit(update, compiler_options=o)(state, batches) for o in (compiler_options(), None))
    change = 0.0
    for start, one, other in zip(*map(jax.tree.leaves, (state.params, found.params, plain.params)), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)
        change = max(change, float(jnp.max(jnp.abs(one - start))))
    assert change > 1e-2
