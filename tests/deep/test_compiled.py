"""What is compiled is what is computed: every head, in batches and as lanes, at the size it is used at."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cramerl.deep.heads import make_head

AGENTS = ("dqn", "c51", "s51", "u51", "qr", "hl_gauss")
SHAPE = (1, 2, 3)  # lanes, batch, actions


def functions(head, rewards, discounts):
    """What a learner and an agent ask of a head, of its outputs alone."""

    def loss(outputs):
        target = head.target(rewards, discounts, jnp.flip(outputs, -1))
        return head.loss(outputs, jax.lax.stop_gradient(target))

    return {
        "distribution": lambda outputs: head.distribution(outputs)[1],
        "target": lambda outputs: head.target(rewards, discounts, outputs),
        "gradient": jax.grad(lambda outputs: jnp.sum(loss(outputs))),
    }


@pytest.mark.parametrize("agent", AGENTS)
def test_a_compiled_head_computes_the_same(agent):
    head = make_head(agent, num_atoms=51, v_min=-10.0, v_max=10.0)
    rng = np.random.default_rng(0)
    outputs = jnp.asarray(rng.normal(size=(*SHAPE, head.num_outputs)), jnp.float32)
    rewards, discounts = (jnp.asarray(rng.random(SHAPE), jnp.float32) for _ in range(2))
    for name, function in functions(head, rewards, discounts).items():
        if agent == "dqn" and name == "distribution":
            continue
        with jax.disable_jit():
            expected = np.asarray(function(outputs))
        np.testing.assert_allclose(jax.jit(function)(outputs), expected, rtol=2e-4, atol=2e-5, err_msg=name)

    def of_lane(outputs, rewards, discounts):
        return functions(head, rewards, discounts)["target"](outputs)

    with jax.disable_jit():
        expected = np.asarray(of_lane(outputs, rewards, discounts))
    lanes = jax.jit(jax.vmap(of_lane))(outputs, rewards, discounts)
    np.testing.assert_allclose(lanes, expected, rtol=2e-4, atol=2e-5)
