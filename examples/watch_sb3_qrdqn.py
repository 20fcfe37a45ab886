"""QR-DQN of Stable-Baselines3's contrib package, watched with `cramerl.Recorder`.

Needs `pip install sb3-contrib` (which brings PyTorch) and cramerl with its extra `plot`. Learns CartPole for a minute
on a CPU, then plays an episode and writes it into a page: python examples/watch_sb3_qrdqn.py [STEPS [PAGE]]
"""

import sys

import cramerl

try:
    import torch
    from sb3_contrib import QRDQN
except ImportError:
    sys.exit("This example needs Stable-Baselines3's contrib package; install it with: pip install sb3-contrib")


def quantiles(model, observation):
    """The quantiles (A, K) of every action."""
    with torch.no_grad():
        tensor, _ = model.policy.obs_to_tensor(observation)
        return model.policy.quantile_net(tensor)[0].T  # of a batch of one: (K, A)


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 30_000
    page = sys.argv[2] if len(sys.argv) > 2 else "out/qrdqn.html"
    settings = {"learning_rate": 2.3e-3, "batch_size": 64, "learning_starts": 1000, "target_update_interval": 10}
    settings |= {"train_freq": 256, "gradient_steps": 128, "exploration_fraction": 0.16, "exploration_final_eps": 0.04}
    model = QRDQN("MlpPolicy", "CartPole-v1", policy_kwargs={"n_quantiles": 10}, seed=0, **settings).learn(steps)
    recorder = cramerl.Recorder("QR-DQN", None, discount=model.gamma, env="CartPole-v1", actions=["left", "right"])
    (env,) = model.get_env().envs
    observation, _ = env.reset(seed=0)
    terminated = truncated = False
    while not (terminated or truncated):
        action, _ = model.predict(observation, deterministic=True)
        predicted = quantiles(model, observation)
        next_observation, reward, terminated, truncated, _ = env.step(action)
        recorder.step(observation, action, reward, predicted, terminated=terminated, truncated=truncated)
        observation = next_observation
    print(recorder)
    print(f"wrote {recorder.save(page)}")


if __name__ == "__main__":
    main()
