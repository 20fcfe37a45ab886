"""C51 in one file of PyTorch, in the style of CleanRL, watched with `cramerl.Recorder`.

Needs PyTorch, Gymnasium and cramerl with its extra `plot`. Learns CartPole for half a minute on a CPU, then plays three
episodes and writes them into a page: python examples/watch_c51_pytorch.py [STEPS [PAGE]]
"""

import random
import sys
from collections import deque

import gymnasium
import numpy as np
import torch
from torch import nn

import cramerl

ENV, DISCOUNT = "CartPole-v1", 0.99
ATOMS = torch.linspace(0, 100, 51)
SPACING = float(ATOMS[1] - ATOMS[0])


class Network(nn.Module):
    """From observations to a distribution for each action."""

    def __init__(self, num_inputs, num_actions):
        super().__init__()
        self.num_actions = num_actions
        self.layers = nn.Sequential(
            *(nn.Linear(num_inputs, 120), nn.ReLU()),
            *(nn.Linear(120, 84), nn.ReLU()),
            nn.Linear(84, num_actions * len(ATOMS)),
        )

    def forward(self, observations):
        """Logarithms of the probabilities (B, A, K)."""
        return self.layers(observations).unflatten(-1, (self.num_actions, len(ATOMS))).log_softmax(dim=-1)

    @torch.no_grad()
    def probs(self, observations):
        """The probabilities (B, A, K), or (A, K) for one observation."""
        return self(torch.as_tensor(np.asarray(observations), dtype=torch.float32)).exp()


def project(rewards, discounts, probs):
    """The probabilities of r + discount * Z, split between neighbouring atoms: (B,), (B,), (B, K) -> (B, K)."""
    places = ((rewards[:, None] + discounts[:, None] * ATOMS).clamp(ATOMS[0], ATOMS[-1]) - ATOMS[0]) / SPACING
    shares = (1 - (places[:, :, None] - torch.arange(len(ATOMS))).abs()).clamp(min=0)
    return (probs[:, :, None] * shares).sum(dim=1)


def update(network, target, optimiser, batch):
    observations, actions, rewards, next_observations, terminated = map(np.array, zip(*batch, strict=True))
    next_probs = target.probs(next_observations)
    best = (next_probs @ ATOMS).argmax(dim=1)
    discounts = DISCOUNT * (1 - torch.as_tensor(terminated, dtype=torch.float32))
    wanted = project(torch.as_tensor(rewards, dtype=torch.float32), discounts, next_probs[range(len(best)), best])
    said = network(torch.as_tensor(observations))[range(len(best)), torch.as_tensor(actions)]
    loss = -(wanted * said).sum(dim=1).mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()


def train(env, steps):
    network = Network(env.observation_space.shape[0], env.action_space.n)
    target = Network(env.observation_space.shape[0], env.action_space.n)
    target.load_state_dict(network.state_dict())
    optimiser = torch.optim.Adam(network.parameters(), lr=5e-4, eps=0.01 / 128)
    replay = deque(maxlen=20_000)
    observation, _ = env.reset(seed=0)
    for step in range(steps):
        if random.random() < max(0.05, 1 - 2 * step / steps):
            action = env.action_space.sample()
        else:
            action = int((network.probs(observation) @ ATOMS).argmax())
        next_observation, reward, terminated, truncated, _ = env.step(action)
        replay.append((observation, action, reward, next_observation, terminated))
        observation = env.reset()[0] if terminated or truncated else next_observation
        if step >= 500 and step % 4 == 0:
            update(network, target, optimiser, random.sample(replay, 128))
        if step % 500 == 0:
            target.load_state_dict(network.state_dict())
    return network


def record(env, network, episodes):
    recorder = cramerl.Recorder("C51", ATOMS, discount=DISCOUNT, env=ENV, actions=["push left", "push right"])
    for seed in range(episodes):
        observation, _ = env.reset(seed=seed)
        terminated = truncated = False
        while not (terminated or truncated):
            probs = network.probs(observation)
            action = int((probs @ ATOMS).argmax())
            next_observation, reward, terminated, truncated, _ = env.step(action)
            recorder.step(observation, action, reward, probs, terminated=terminated, truncated=truncated)
            observation = next_observation
    return recorder


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    page = sys.argv[2] if len(sys.argv) > 2 else "out/c51.html"
    torch.manual_seed(0)
    random.seed(0)
    env = gymnasium.make(ENV)
    env.action_space.seed(0)
    recorder = record(env, train(env, steps), episodes=3)
    print(recorder)
    print(f"wrote {recorder.save(page, episode='best')}")


if __name__ == "__main__":
    main()
