"""Device time of one backup and one distance in JAX, without dispatch: two hundred of each in one compiled loop.

Each is compared with the version through a matrix: hat weights for the backup, the Gram matrix for the distance.

    python benchmarks/backup_on_device.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import cramerl
from cramerl import Support

REPEATS = 200


def microseconds(function: Callable[..., Any], masses: Any, rewards: Any) -> float:
    loop = jax.jit(lambda m, r: jax.lax.fori_loop(0, REPEATS, lambda _, x: function(x, r), m))
    loop(masses, rewards).block_until_ready()
    best = float("inf")
    for _ in range(5):
        started = time.perf_counter()
        loop(masses, rewards).block_until_ready()
        best = min(best, time.perf_counter() - started)
    return best / REPEATS * 1e6


def compare(batch: int, num_atoms: int) -> None:
    support, rng = Support.uniform(-10, 10, num_atoms), np.random.default_rng(0)
    masses = jnp.asarray(rng.dirichlet(np.ones(num_atoms), batch), jnp.float32)
    rewards = jnp.asarray(rng.uniform(-1, 1, batch), jnp.float32)
    z, gram = jnp.asarray(support.atoms, jnp.float32), jnp.asarray(cramerl.cramer_gram(support, 1.0), jnp.float32)
    spacing = float(support.spacings[0])

    def hat(m, r):
        x = jnp.clip(r[:, None] + 0.99 * z[None], -10, 10)
        weights = jnp.clip(1 - jnp.abs(x[:, None, :] - z[None, :, None]) / spacing, 0, 1)
        return jnp.sum(weights * m[:, None, :], -1)

    def distance(m, _):
        return m * (1 + 0 * cramerl.cramer_distance_sq(support, m, m[::-1], 1.0)[:, None])

    def product(m, _):
        d = m - m[::-1]
        return m * (1 + 0 * jnp.sum((d @ gram) * d, -1)[:, None])

    functions = (lambda m, r: cramerl.backup(support, r, 0.99, m), hat, distance, product)
    figures = "".join(f"{microseconds(f, masses, rewards):>12.1f}" for f in functions)
    print(f"{batch:>6}{num_atoms:>6}{figures}", flush=True)


def main() -> None:
    print(f"{jax.devices()[0]}, jax {jax.__version__}, float32, microseconds")
    print(f"{'batch':>6}{'atoms':>6}{'backup':>12}{'hat matrix':>12}{'distance':>12}{'product':>12}")
    for batch, num_atoms in ((32, 51), (256, 51), (1024, 51), (32, 201), (1024, 201)):
        compare(batch, num_atoms)


if __name__ == "__main__":
    main()
