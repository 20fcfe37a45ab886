"""JAX: the Cramér loss of S51 in your own agent, which learns when to stop and the distribution of its pay."""

from functools import partial

import jax
import jax.numpy as jnp
import optax

from cramerl import Support, backup, cramer_loss, mean, with_unit_mass

STOP, ROLL = 0, 1
support = Support.uniform(-1, 4, 11)  # hashable: close over it, or pass it as a static argument
optimiser = optax.adam(optax.linear_schedule(1e-2, 0.0, 3000))


def network(weights, states):
    """Signed masses (batch, actions, atoms): any function that returns one number per action and atom."""
    hidden = jax.nn.relu(jax.nn.one_hot(states, 3) @ weights["in"])
    return (hidden @ weights["out"]).reshape(-1, 2, support.num_atoms)


def loss(weights, target_weights, states, actions, rewards, discounts, next_states):
    """Mean Cramér loss of a batch of transitions; a discount of 0 means that the episode ended."""
    rows = jnp.arange(len(states))
    distributions = with_unit_mass(support, network(target_weights, next_states))
    best = mean(support, distributions).argmax(-1)
    target = jax.lax.stop_gradient(backup(support, rewards, discounts, distributions[rows, best]))
    prediction = network(weights, states)[rows, actions]
    return cramer_loss(support, target, prediction, mass_penalty=1.0).mean()


def play(key, states, actions):
    """Stopping in state s pays s. Rolling moves up with probability 3/4, else ends the game; reaching 3 pays 3."""
    lucky, last = jax.random.bernoulli(key, 0.75, states.shape), states == 2
    rewards = jnp.where(actions == STOP, states, 3 * (lucky & last)).astype(float)
    goes_on = (actions == ROLL) & lucky & ~last
    return rewards, goes_on.astype(float), jnp.minimum(states + 1, 2)


@partial(jax.jit, donate_argnums=(0, 2))
def update(weights, target_weights, memory, key):
    """One step of the optimiser on a batch of fresh transitions; in your own agent they come from its replay."""
    keys = jax.random.split(key, 3)
    states, actions = (jax.random.randint(k, (256,), 0, n) for k, n in zip(keys[:2], (3, 2), strict=True))
    rewards, discounts, next_states = play(keys[2], states, actions)
    gradient = jax.grad(loss)(weights, target_weights, states, actions, rewards, discounts, next_states)
    change, memory = optimiser.update(gradient, memory)
    return optax.apply_updates(weights, change), memory


key = jax.random.key(0)
shapes = {"in": (3, 64), "out": (64, 2 * support.num_atoms)}
weights = {name: 0.1 * jax.random.normal(key, shape) for name, shape in shapes.items()}
memory = optimiser.init(weights)
for start in range(0, 3000, 100):
    target_weights = jax.tree.map(jnp.copy, weights)
    for step in range(start, start + 100):
        weights, memory = update(weights, target_weights, memory, jax.random.fold_in(key, step))

for state, (stop, roll) in enumerate(network(weights, jnp.arange(3))):
    print(
        f"state {state}: stop is worth {mean(support, stop):.2f}, roll {mean(support, roll):.2f}; "
        f"a roll pays 3 with probability {roll[8]:.2f}, 0 with {roll[2]:.2f}"
    )
