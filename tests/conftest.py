"""Strict by default: warnings are errors (pyproject.toml), JAX neither promotes ranks nor mixes dtypes."""

from __future__ import annotations

import atexit
import importlib.metadata
import importlib.util
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

# Before NumPy is imported: pytest-xdist fills the cores already, and threads of OpenBLAS that wait for each other make
# small solves 40 times as long.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Before JAX is imported: what one test, worker or child process compiles, all others read from this folder.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="cramerl-compiled-")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    atexit.register(shutil.rmtree, os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)
# Tests compile many programs and run each for an instant: LLVM's optimisations cost more than they save.
os.environ["XLA_FLAGS"] = f"--xla_backend_optimization_level=0 {os.environ.get('XLA_FLAGS', '')}".strip()
# JAX 0.10's older emitters compile a single operation in half the time; later versions abort at the flag.
if importlib.metadata.version("jaxlib").startswith("0.10."):
    os.environ["XLA_FLAGS"] += " --xla_cpu_use_fusion_emitters=false"

import array_api_strict
import hypothesis
import jax
import matplotlib as mpl
import numpy as np
import pytest
from lenient import lenient

from cramerl._arrays import host_values
from cramerl.cli.main import main as cli

mpl.use("Agg")
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")
# The same examples on every run: a failure in CI is a failure here.
hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=60)
hypothesis.settings.load_profile("fixed")

HAS_TORCH = importlib.util.find_spec("torch") is not None
needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
LIBRARIES = ["numpy", "strict", "jax", pytest.param("torch", marks=needs_torch)]


@dataclass(frozen=True)
class Library:
    """One array library: how to enter it and how to leave it."""

    name: str
    array: Callable[[Any], Any]
    module: Any

    def numpy(self, array: Any) -> np.ndarray:
        assert isinstance(array, (type(self.array(np.zeros(1))), np.generic))
        if self.name == "strict":
            return np.from_dlpack(array)  # pyright: ignore[reportArgumentType]
        values = host_values(array)
        assert values is not None
        return values


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> Iterator[Library]:
    """Every function runs on each of these in float64; JAX under a scoped x64."""
    if request.param == "numpy":
        yield Library("numpy", lambda a: np.array(a, dtype=np.float64), np)
    elif request.param == "strict":
        yield Library("strict", lambda a: array_api_strict.asarray(np.array(a, np.float64)), array_api_strict)
    elif request.param == "torch":
        import torch

        yield Library("torch", lambda a: torch.tensor(np.array(a), dtype=torch.float64), torch)
    else:
        request.getfixturevalue("x64")
        yield Library("jax", lambda a: jax.numpy.asarray(a, dtype=jax.numpy.float64), jax.numpy)


@pytest.fixture
def x64() -> Iterator[None]:
    """JAX in double precision for one test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def lenient_jax() -> Iterator[None]:
    """Optax and gymnax mix dtypes and ranks, which is otherwise forbidden here."""
    with lenient():
        yield


@pytest.fixture(scope="module")
def sweep_command() -> Iterator[Callable[..., int]]:
    """`cramerl sweep` in this process, with real children."""
    before = getattr(jax.config, "jax_platforms"), signal.getsignal(signal.SIGTERM)  # noqa: B009 - pyright knows it not
    with lenient():
        yield lambda *words: cli(["sweep", *map(str, words)])
    jax.config.update("jax_platforms", before[0])
    signal.signal(signal.SIGTERM, before[1])
