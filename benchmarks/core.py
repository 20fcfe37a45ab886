"""Cost of `project`, `backup` and `cramer_distance_sq` by number of atoms and batch size.

Each is compared with the version that goes through a K x K matrix (as most C51 code does), in the same run and on the
same arrays; the last column is how many times faster ours is. The values of both are compared first.

    python benchmarks/core.py [--quick] [--libraries numpy jax torch] [--atoms K ...] [--batches B ...]
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

import cramerl
from cramerl import Support

DISCOUNT = 0.99
ATOMS = (11, 51, 201, 501)
BATCHES = (1, 32, 1024)
# The matrix version holds batch x K x K numbers: skip sizes at which that would be gigabytes.
MOST_ENTRIES = 1024 * 201 * 201


class Numpy:
    name = "numpy float64"

    def array(self, values):
        return np.asarray(values)

    def prepare(self, function):
        return function

    def wait(self, result):
        return result

    def matmul(self, weights, masses):
        return (weights @ masses[..., None])[..., 0]

    xp: Any = np


class Jax(Numpy):
    def __init__(self):
        import jax

        self.jax, self.xp = jax, jax.numpy
        self.name = f"jax float32, jit, {jax.default_backend()}"

    def array(self, values):
        return self.jax.numpy.asarray(values, dtype="float32")

    def prepare(self, function):
        return self.jax.jit(function)

    def wait(self, result):
        return result.block_until_ready()


class Torch(Numpy):
    def __init__(self):
        import torch

        self.xp = torch
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.name = f"torch float32, eager, {self.device}"

    def array(self, values):
        return self.xp.tensor(np.asarray(values), dtype=self.xp.float32, device=self.device)

    def wait(self, result):
        if self.device == "cuda":
            self.xp.cuda.synchronize()
        return result


LIBRARIES = {"numpy": Numpy, "jax": Jax, "torch": Torch}


def hat_matrix(xp: Any, support: Support, z: Any, atoms: Any) -> Any:
    """(B, K, J) weights of the projection, as C51 code writes it."""
    inside = xp.clip(atoms, support.v_min, support.v_max)
    distance = xp.abs(inside[:, None, :] - z[None, :, None]) / float(support.spacings[0])
    return xp.clip(1 - distance, 0, 1)


def cases(library: Numpy, support: Support, batch: int) -> Iterator[tuple[str, Callable, Callable, tuple]]:
    rng = np.random.default_rng(0)
    k, xp = support.num_atoms, library.xp
    z = library.array(support.atoms)
    p, q = (library.array(rng.normal(size=(batch, k))) for _ in range(2))
    rewards = library.array(rng.uniform(-1, 1, size=batch))
    atoms = library.array(rng.uniform(-12, 12, size=(batch, k)))
    gram = library.array(cramerl.cramer_gram(support, 1.0))
    yield (
        "project",
        lambda x, m: cramerl.project(support, x, m),
        lambda x, m: library.matmul(hat_matrix(xp, support, z, x), m),
        (atoms, p),
    )
    yield (
        "backup",
        lambda r, m: cramerl.backup(support, r, DISCOUNT, m),
        lambda r, m: library.matmul(hat_matrix(xp, support, z, r[:, None] + DISCOUNT * z[None, :]), m),
        (rewards, p),
    )
    yield (
        "cramer_distance_sq",
        lambda a, b: cramerl.cramer_distance_sq(support, a, b, mass_penalty=1.0),
        lambda a, b: (((a - b) @ gram) * (a - b)).sum(-1),
        (p, q),
    )


def run(library: Numpy, function: Callable, arrays: tuple) -> None:
    library.wait(function(*arrays))


def seconds(call: Callable[[], Any], budget: float) -> float:
    """The best of several repetitions, which other processes disturbed least."""
    call()
    started, best = time.perf_counter(), float("inf")
    while time.perf_counter() - started < budget:
        before = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - before)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the time per figure")
    parser.add_argument("--libraries", nargs="+", choices=LIBRARIES, default=list(LIBRARIES))
    parser.add_argument("--atoms", nargs="+", type=int, default=ATOMS)
    parser.add_argument("--batches", nargs="+", type=int, default=BATCHES)
    options = parser.parse_args()
    budget = 0.02 if options.quick else 0.2
    print(f"{'library':<26}{'function':<20}{'batch':>6}{'atoms':>6}{'ours us':>10}{'matrix us':>11}{'ratio':>8}")
    for name in options.libraries:
        if importlib.util.find_spec(name) is None:
            print(f"{name:<26}not installed")
            continue
        library = LIBRARIES[name]()
        for batch in options.batches:
            for k in options.atoms:
                if batch * k * k > MOST_ENTRIES:
                    continue
                compare(library, Support.uniform(-10, 10, k), batch, budget)


def compare(library: Numpy, support: Support, batch: int, budget: float) -> None:
    for function, ours, matrix, arrays in cases(library, support, batch):
        ours, matrix = library.prepare(ours), library.prepare(matrix)
        fast, slow = (np.asarray(f(*arrays).tolist()) for f in (ours, matrix))
        np.testing.assert_allclose(fast, slow, rtol=1e-2, atol=1e-2 * np.abs(slow).max())
        a, b = (seconds(partial(run, library, f, arrays), budget) for f in (ours, matrix))
        row = f"{library.name:<26}{function:<20}{batch:>6}{support.num_atoms:>6}"
        print(f"{row}{a * 1e6:>10.1f}{b * 1e6:>11.1f}{b / a:>8.2f}", flush=True)


if __name__ == "__main__":
    main()
