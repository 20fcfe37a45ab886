"""Trees of arrays as named arrays and back, for files."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

Arrays = dict[str, np.ndarray]


class Damaged(ValueError):  # noqa: N818 - read as `except Damaged`
    """A checkpoint that cannot be used; the message says why."""


def flatten(tree: Any) -> Arrays:
    """Leaves of a JAX pytree as NumPy arrays, named by their path in it, such as ``"conv1.weights"``."""
    return {name: np.asarray(leaf) for name, leaf in _named_leaves(tree).items()}


def unflatten(like: Any, arrays: Arrays, what: str = "checkpoint") -> Any:
    """A tree of the same structure as ``like`` with the NumPy leaves that :func:`flatten` returned.

    Args:
        like: a tree of arrays or of ``jax.ShapeDtypeStruct``.
        arrays: the leaves by name.
        what: what they are, for messages.

    Raises:
        Damaged: a name, shape or dtype is not that of ``like``.
    """
    wanted = _named_leaves(like)
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
            raise Damaged(f"the {what} has an array named {name!r}, which does not belong to it")
    return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(like), [arrays[name] for name in wanted])


def weights_of(arrays: Arrays) -> Arrays:
    """The weights among the arrays of a checkpoint, by names such as ``"conv1.weights"``.

    They are the leaves of ``params``, wherever it stands in the tree; the target network and the optimiser have others.
    """
    parted = {name: name.split(".") for name in arrays}
    return {
        ".".join(parts[parts.index("params") + 1 :]): arrays[name]
        for name, parts in parted.items()
        if "params" in parts
    }


def _named_leaves(tree: Any) -> dict[str, Any]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}
