"""Recordings made by hand, for tests of what is drawn from them."""

from __future__ import annotations

import numpy as np

from cramerl.watching.recording import Recording, Tape, View, make_view

ATOMS = np.linspace(-10, 10, 11)


def make_recording(
    steps: int = 40, views: tuple[str, ...] = ("s51", "c51"), *, seed: int = 0, actions: int = 3
) -> Recording:
    """Random distributions of some actions and a wandering dot; only step 17 has a double negative."""
    rng = np.random.default_rng(seed)
    action = rng.integers(0, actions, steps).astype(np.int32)
    tape = Tape((6, 8))
    for t in range(steps):
        picture = np.zeros((6, 8), np.uint8)
        picture[t % 6, t % 8] = 1 + t % 2
        tape.append(picture)
    reward = (np.arange(steps) % 5 == 4).astype(np.float32)
    return Recording(
        title="agents <on> a game",
        unit="step",
        facts=["a fact"],
        actions=["stay", "left", "right", *(f"other {i}" for i in range(3, actions))],
        tape=tape,
        palette=np.array([[0, 0, 0], [230, 159, 0], [86, 180, 233]], np.uint8),
        legend=[("dot", "#e69f00"), ("odd dot", "#56b4e9")],
        caption="a dot",
        action=action,
        reward=reward,
        score=np.concatenate([[0], np.cumsum(reward)[:-1]]).astype(np.float32),
        episode=np.zeros(steps, np.int32),
        realised=np.where(np.arange(steps) < steps // 2, 0.5, np.nan).astype(np.float32),
        views=[_view(name, rng, actions, action) for name in views],
    )


def _view(name: str, rng: np.random.Generator, actions: int, action: np.ndarray) -> View:
    steps = len(action)
    if name in ("qr", "dqn"):
        places = np.sort(rng.normal(size=(steps, actions, 1 if name == "dqn" else 5)), axis=-1)
        return make_view(name, None, places, places.mean(axis=-1), action)
    distributions = rng.dirichlet(np.ones(11), size=(steps, actions))
    if name == "s51":
        distributions[:, :, -1] -= 0.3  # negative mass on a positive return
        distributions[:, :, 5] += 0.3
        if steps > 17:
            distributions[17, action[17], 1] -= 0.6
            distributions[17, action[17], 8] += 0.6
    view = make_view(name, ATOMS, distributions, distributions @ ATOMS, action)
    return view._replace(clipped=np.linspace(0, 0.1, steps, dtype=np.float32))
