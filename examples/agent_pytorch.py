"""PyTorch: the Cramér loss of S51 in your own agent, which learns when to stop and the distribution of its pay."""

import copy

import torch

from cramerl import Support, backup, cramer_loss, mean, with_unit_mass

STOP, ROLL = 0, 1
support = Support.uniform(-1, 4, 11)


class Network(torch.nn.Module):
    """Signed masses (batch, actions, atoms): any module that returns one number per action and atom."""

    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Linear(3, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2 * support.num_atoms)
        )

    def forward(self, states):
        """States (batch,) to masses."""
        one_hot = torch.nn.functional.one_hot(states, 3).float()
        return self.body(one_hot).unflatten(-1, (2, support.num_atoms))


def loss(network, target_network, states, actions, rewards, discounts, next_states):
    """Mean Cramér loss of a batch of transitions; a discount of 0 means that the episode ended."""
    rows = torch.arange(len(states))
    with torch.no_grad():
        distributions = with_unit_mass(support, target_network(next_states))
        best = mean(support, distributions).argmax(-1)
        target = backup(support, rewards, discounts, distributions[rows, best])
    prediction = network(states)[rows, actions]
    return cramer_loss(support, target, prediction, mass_penalty=1.0).mean()


def play(states, actions):
    """Stopping in state s pays s. Rolling moves up with probability 3/4, else ends the game; reaching 3 pays 3."""
    lucky, last = torch.rand(states.shape) < 0.75, states == 2
    rewards = torch.where(actions == STOP, states, 3 * (lucky & last)).float()
    goes_on = (actions == ROLL) & lucky & ~last
    return rewards, goes_on.float(), torch.clamp(states + 1, max=2)


torch.manual_seed(0)
torch.set_num_threads(1)  # for arrays this small, threads cost more than they gain
network = Network()
optimiser = torch.optim.Adam(network.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.01, total_iters=1500)
for _ in range(15):
    target_network = copy.deepcopy(network)
    for _ in range(100):
        states, actions = torch.randint(3, (256,)), torch.randint(2, (256,))  # in your own agent: from its replay
        optimiser.zero_grad()
        loss(network, target_network, states, actions, *play(states, actions)).backward()
        optimiser.step()
        schedule.step()

for state, (stop, roll) in enumerate(network(torch.arange(3)).detach()):
    print(
        f"state {state}: stop is worth {mean(support, stop):.2f}, roll {mean(support, roll):.2f}; "
        f"a roll pays 3 with probability {roll[8]:.2f}, 0 with {roll[2]:.2f}"
    )
