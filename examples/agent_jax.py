"""JAX: the Cramér loss of S51 in an agent of your own, which learns when to stop and what it will be paid."""

from functools import partial

import jax
import jax.numpy as jnp
import optax

from cramerl import Support, backup, cramer_loss, mean, total_mass

STOP, ROLL = 0, 1
support = Support.uniform(-1, 4, 11)  # hashable: it can be closed over, or be a static argument
optimiser = optax.adam(optax.linear_schedule(1e-2, 0.0, 3000))


def network(weights, states):
    """Signed masses (batch, actions, atoms): any function that ends in one number for each action and atom."""
    hidden = jax.nn.relu(jax.nn.one_hot(states, 3) @ weights["in"])
    return (hidden @ weights["out"]).reshape(-1, 2, support.num_atoms)


def loss(weights, target_weights, states, actions, rewards, discounts, next_states):
    """Mean Cramér loss of a batch of transitions; a discount of 0 says that the episode ended."""
    rows = jnp.arange(len(states))
    distributions = network(target_weights, next_states)
    distributions = (
        distributions + (1 - total_mass(support, distributions))[..., None] / support.num_atoms
    )  # mass one, whatever the network says
    best = mean(support, distributions).argmax(-1)
    target = jax.lax.stop_gradient(backup(support, rewards, discounts, distributions[rows, best]))
    prediction = network(weights, states)[rows, actions]
    return cramer_loss(support, target, prediction, mass_penalty=1.0).mean()


def play(key, states, actions):
    """Stop in state s: paid s. Roll: one state on with probability 3/4, else nothing; whoever reaches 3 is paid 3."""
    lucky, last = jax.random.bernoulli(key, 0.75, states.shape), states == 2
    rewards = jnp.where(actions == STOP, states, 3 * (lucky & last)).astype(float)
    goes_on = (actions == ROLL) & lucky & ~last
    return rewards, goes_on.astype(float), jnp.minimum(states + 1, 2)


@partial(jax.jit, donate_argnums=(0, 2))
def update(weights, target_weights, memory, key):
    """One step of the optimiser on a batch of fresh transitions; in an agent of yours they come from its replay."""
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
