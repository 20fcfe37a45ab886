"""Agent steps per second of Stable-Baselines3's DQN or sb3-contrib's QR-DQN on MinAtar Breakout; see deep.py.

Run by deep.py in an environment that has those libraries:  python benchmarks/deep_others.py dqn|qrdqn SECONDS
"""

from __future__ import annotations

import json
import resource
import sys
import time

import gymnasium
import minatar.gym
import numpy as np
import torch
from sb3_contrib import QRDQN
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor


class ChannelsFirst(gymnasium.ObservationWrapper):
    """Pictures of floats, channels first, as PyTorch's convolution expects them."""

    def __init__(self, env):
        super().__init__(env)
        height, width, channels = env.observation_space.shape
        self.observation_space = gymnasium.spaces.Box(0, 1, (channels, height, width), np.float32)

    def observation(self, observation):
        return observation.transpose(2, 0, 1).astype(np.float32)


class MinAtarCNN(BaseFeaturesExtractor):
    """16 3x3 filters and 128 units."""

    def __init__(self, observation_space):
        super().__init__(observation_space, 128)
        channels, height, width = observation_space.shape
        flat = 16 * (height - 2) * (width - 2)
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(channels, 16, 3),
            torch.nn.ReLU(),
            torch.nn.Flatten(),
            torch.nn.Linear(flat, 128),
            torch.nn.ReLU(),
        )

    def forward(self, observations):
        return self.layers(observations)


class Clock(BaseCallback):
    """Time the steps after the warm-up, and stop after enough of them."""

    def __init__(self, warm_up: int, seconds: float):
        super().__init__()
        self.warm_up, self.seconds, self.began = warm_up, seconds, None

    def _on_step(self) -> bool:
        if self.num_timesteps >= self.warm_up and self.began is None:
            self.began, self.first = time.perf_counter(), self.num_timesteps
        if self.began is None:
            return True
        self.spent, self.steps = time.perf_counter() - self.began, self.num_timesteps - self.first
        return self.spent < self.seconds


def main() -> None:
    agent, seconds = sys.argv[1], float(sys.argv[2])
    minatar.gym.register_envs()
    envs = make_vec_env("MinAtar/Breakout-v1", n_envs=16, wrapper_class=ChannelsFirst, seed=0)
    network = {"features_extractor_class": MinAtarCNN, "net_arch": [], "normalize_images": False}
    if agent == "qrdqn":
        network["n_quantiles"] = 51
    settings = {"learning_rate": 2.5e-4, "buffer_size": 100_000, "learning_starts": 1_600, "batch_size": 32}
    # A step of the 16 environments is 16 agent steps: four updates.
    settings |= {"train_freq": 1, "gradient_steps": 4, "target_update_interval": 1_000, "device": "cpu", "seed": 0}
    model = {"dqn": DQN, "qrdqn": QRDQN}[agent]("CnnPolicy", envs, policy_kwargs=network, **settings)
    clock = Clock(warm_up=3_200, seconds=seconds)
    model.learn(10_000_000, callback=clock)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(json.dumps({"steps_per_second": clock.steps / clock.spent, "gigabytes": memory}))


if __name__ == "__main__":
    main()
