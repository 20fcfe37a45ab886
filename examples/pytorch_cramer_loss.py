"""Ten lines of PyTorch: learn the distribution of the reward, N(x, 0.5), in each state x, with the Cramér loss."""

import torch

from cramerl import Support, cramer_loss, mean, project, total_mass, variance

torch.manual_seed(0)
support = Support.uniform(-4, 4, 33)
network = torch.nn.Sequential(torch.nn.Linear(1, 64), torch.nn.ReLU(), torch.nn.Linear(64, support.num_atoms))
optimiser = torch.optim.Adam(network.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.01, total_iters=2000)
for _ in range(2000):
    states = 3 * torch.rand(256, 1) - 1.5
    rewards = states + 0.5 * torch.randn(256, 1)
    target = project(support, rewards, torch.ones(256, 1))  # in an agent: backup(support, reward, discount, masses)
    optimiser.zero_grad()
    cramer_loss(support, target, network(states), mass_penalty=10.0).mean().backward()
    optimiser.step()
    schedule.step()

states = torch.tensor([[-1.0], [0.0], [1.0]])
masses = network(states).detach()
columns = (states[:, 0], mean(support, masses), variance(support, masses) ** 0.5, total_mass(support, masses))
for x, centre, spread, total in zip(*columns, strict=True):
    print(f"state {x:+.1f}: mean {centre:+.2f}, standard deviation {spread:.2f}, total mass {total:.2f}")
