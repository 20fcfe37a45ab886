"""What tests that run whole programs share: optax and gymnax are not written as strictly as conftest.py asks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import jax


@contextmanager
def lenient() -> Iterator[None]:
    """Let other people's code mix dtypes and ranks."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield
