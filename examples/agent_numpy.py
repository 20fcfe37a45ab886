"""NumPy: an agent without automatic differentiation learns when to stop, and the distribution of its pay.

In the coordinates of `unit_mass_basis` (those of U51), half the squared Cramér distance has the gradient of a plain
squared error: outputs minus target. So a learning step is a weighted average.
"""

import numpy as np

from cramerl import Support, backup, mean, unit_mass_basis

STOP, ROLL = 0, 1


def play(rng, states, actions):
    """Stopping in state s pays s. Rolling moves up with probability 3/4, else ends the game; reaching 3 pays 3."""
    lucky, last = rng.random(states.shape) < 0.75, states == 2
    rewards = np.where(actions == STOP, states, 3 * (lucky & last))
    goes_on = (actions == ROLL) & lucky & ~last
    return rewards, np.minimum(states + 1, 2), goes_on


rng = np.random.default_rng(0)
support = Support.uniform(-1, 4, 11)
basis = unit_mass_basis(support)
outputs = np.zeros((3, 2, support.num_atoms - 1))  # one row for each state and action
states, actions = (grid.ravel() for grid in np.meshgrid(np.arange(3), np.arange(2)))
for step in range(4000):
    rewards, next_states, goes_on = play(rng, states, actions)
    distributions = basis.masses(outputs[next_states])  # (6, actions, atoms), with unit mass by construction
    best = mean(support, distributions).argmax(axis=-1)
    target = backup(support, rewards, 1.0 * goes_on, distributions[np.arange(6), best])
    rate = max(0.5 / (1 + 0.01 * step), 0.002)
    outputs[states, actions] -= rate * (outputs[states, actions] - basis.outputs(target))

distributions = basis.masses(outputs)
for state, (stop, roll) in enumerate(distributions):
    print(
        f"state {state}: stop is worth {mean(support, stop):.2f}, roll {mean(support, roll):.2f}; "
        f"a roll pays 3 with probability {roll[8]:.2f}, 0 with {roll[2]:.2f}"
    )
