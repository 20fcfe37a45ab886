"""Trees of arrays as named arrays and back, for files."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

Arrays = dict[str, np.ndarray]


class Damaged(ValueError):  # noqa: N818 - read as `except Damaged`
    """A checkpoint that cannot be used, with a sentence that says why."""


def flatten(tree: Any) -> Arrays:
    """Leaves of a JAX pytree as NumPy arrays, by their path in it, such as ``"['conv1']['w']"``."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def unflatten(like: Any, arrays: Arrays, what: str = "checkpoint") -> Any:
    """A tree such as ``like`` (arrays, or ``jax.ShapeDtypeStruct``) with the NumPy leaves that :func:`flatten` gave.

    Raises:
        Damaged: a name, shape or dtype is not that of ``like``.
    """
    leaves, structure = jax.tree_util.tree_flatten_with_path(like)
    wanted = {jax.tree_util.keystr(path): leaf for path, leaf in leaves}
    for name, leaf in wanted.items():
        if name not in arrays:
            raise Damaged(f"the {what} has no array named {name!r}")
        leaf, array = leaf if hasattr(leaf, "dtype") else np.asarray(leaf), arrays[name]
        for word in ("shape", "dtype"):
            if getattr(array, word) != getattr(leaf, word):
                got, must = getattr(array, word), getattr(leaf, word)
                raise Damaged(f"{name!r} has {word} {got} in the {what}, but must have {word} {must}")
    for name in arrays:
        if name not in wanted:
            raise Damaged(f"the {what} has an array named {name!r}, which has no place here")
    return jax.tree_util.tree_unflatten(structure, [arrays[name] for name in wanted])
