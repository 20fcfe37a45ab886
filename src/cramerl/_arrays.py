"""The one place that knows which array library the caller uses.

Everything above this module is written against the array API standard. What the standard lacks (adding at
indices, a running minimum, the logarithm of the normal CDF) is here, once per library.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import numpy as np
from array_api_compat import (
    array_namespace,
    device,
    is_array_api_obj,
    is_jax_array,
    is_jax_namespace,
    is_numpy_namespace,
    is_torch_array,
    is_torch_namespace,
)
from numpy.typing import NDArray

# An array of any library; docstrings state shapes with the letters of the project:
# B batch, S states, K atoms of the support, J source atoms.
Array = Any
# A NumPy array in float64, where a computation runs on the host alone.
Floats = NDArray[np.float64]


_LARGEST = 10**300  # integers beyond it may not fit a float


def is_array(value: Any) -> bool:
    """Whether the value is an array of some library, NumPy's scalars included."""
    return bool(is_array_api_obj(value))  # a plain bool: the original narrows types, also where it is False


def as_floats(**arguments: Any) -> tuple[Any, ...]:
    """Bring arguments to one library, one floating dtype and one device: ``xp, first, second, ...``.

    NumPy arrays, lists and numbers follow the arrays of another library where there are any, in their dtype.
    Among themselves arrays promote as their library promotes them; integers become the library's default float.
    """
    values = tuple(arguments.values())
    if _alike(values):
        return array_namespace(values[0]), *values
    libraries = {array_namespace(v): name for name, v in arguments.items() if is_array(v) and not _is_numpy(v)}
    if len(libraries) > 1:
        names = ", ".join(f"{name} from {xp.__name__}" for xp, name in libraries.items())
        raise TypeError(f"all arrays must come from one array library, got {names}")
    xp = next(iter(libraries)) if libraries else array_namespace(np.empty(0))
    natives = [v for v in values if is_array(v) and _belongs(xp, v)]
    floats = [v.dtype for v in natives if xp.isdtype(v.dtype, "real floating")]
    dtype = xp.result_type(*floats) if floats else xp.asarray(0.0).dtype
    home = placement(xp, natives[0]) if natives else None
    return xp, *(_as_float(xp, name, value, dtype, home) for name, value in arguments.items())


def _alike(values: tuple[Any, ...]) -> bool:
    """Nothing to convert: arrays of one type and one floating dtype (the usual case, kept cheap)."""
    first = values[0]
    if not is_array(first) or isinstance(first, np.generic | np.ma.MaskedArray):
        return False
    kind, dtype = type(first), first.dtype
    same = all(type(v) is kind and v.dtype == dtype for v in values)
    return same and array_namespace(first).isdtype(dtype, "real floating")


def _belongs(xp: Any, value: Any) -> bool:
    return is_numpy_namespace(xp) or not _is_numpy(value)


def _is_numpy(value: Any) -> bool:
    return isinstance(value, (np.ndarray, np.generic))


def _as_float(xp: Any, name: str, value: Any, dtype: Any, home: Any) -> Array:
    if is_array(value) and _belongs(xp, value):
        if isinstance(value, np.ma.MaskedArray):  # its mask would be forgotten
            raise ValueError(f"{name} must be an array without a mask, got {value!r}")
        if not xp.isdtype(value.dtype, ("real floating", "integral")):
            raise ValueError(f"{name} must hold real numbers, got dtype {value.dtype}")
        # asarray would cut a torch tensor out of its graph; astype keeps it.
        return xp.asarray(value) if value.dtype == dtype and is_numpy_namespace(xp) else xp.astype(value, dtype)
    if type(value) is float or (type(value) is int and abs(value) < _LARGEST):
        return xp.asarray(value, dtype=dtype, device=home)
    return xp.asarray(host_reals(name, value), dtype=dtype, device=home)


def host_reals(name: str, value: Any) -> np.ndarray:
    """A float64 NumPy array from anything that holds numbers; ValueError for text, truth values and ragged lists."""
    known = host_values(value) if is_array(value) else value
    if known is None:
        raise ValueError(f"{name} must be a concrete array in host memory, not traced and not on an accelerator")
    try:
        host = np.asarray(known)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be an array of real numbers, got {value!r}") from None
    if host.dtype.kind not in "iuf" or isinstance(known, np.ma.MaskedArray):
        raise ValueError(f"{name} must hold real numbers, got {value!r}")
    return host.astype(np.float64, copy=False)


def placement(xp: Any, value: Array) -> Any:
    """The device for constants that meet ``value``; JAX places them itself (they cannot have a batch's sharding)."""
    return None if is_jax_namespace(xp) else device(value)


def constant(xp: Any, values: Any, like: Array) -> Array:
    """A host array as an array of ``like``'s library, dtype and device, to be read only."""
    if is_torch_namespace(xp) and not is_compiling(like):
        host = np.asarray(values, dtype=np.float64)
        return _torch_constant(host.tobytes(), host.shape, like.dtype, like.device)
    return xp.asarray(np.array(values), dtype=like.dtype, device=placement(xp, like))


@functools.lru_cache(maxsize=128)
def _torch_constant(values: bytes, shape: tuple[int, ...], dtype: Any, device: Any) -> Array:
    """A tensor that is cached: every copy to an accelerator makes the host wait for it."""
    torch: Any = sys.modules["torch"]
    with torch.inference_mode(False):  # a tensor made inside inference mode could not be used for gradients later
        return torch.tensor(np.frombuffer(values).reshape(shape).copy(), dtype=dtype, device=device)


def along_last(xp: Any, values: Any, like: Array) -> Array:
    """A host vector shaped (1, ..., 1, K), so that it meets ``like`` without rank promotion."""
    row = constant(xp, values, like)
    return xp.reshape(row, (1,) * (like.ndim - 1) + row.shape)


def apply_matrix(xp: Any, matrix: np.ndarray, vectors: Array) -> Array:
    """A host matrix (M, K) times every vector (..., K). Elementwise: some devices round inside matrix products.

    Summed over the last axis but one: over the last, JAX 0.10.2 on a CPU gives wrong numbers for a first axis of one.
    """
    columns = xp.reshape(constant(xp, matrix.T, vectors), (1,) * (vectors.ndim - 1) + matrix.shape[::-1])
    return xp.sum(vectors[..., :, None] * columns, axis=-2)


def is_compiling(value: Array) -> bool:
    """Whether ``torch.compile`` is tracing this code."""
    return is_torch_array(value) and sys.modules["torch"].compiler.is_compiling()


def host_values(value: Array) -> np.ndarray | None:
    """The values as a NumPy array, outside any graph, or None if reading them is not free.

    None for values that are only being traced (``jax.jit``, ``torch.compile``, ``torch.func``) and for arrays on an
    accelerator, where reading them would make the host wait for the device.
    """
    if isinstance(value, np.ndarray):
        return value
    if is_jax_array(value):
        jax = sys.modules["jax"]
        if isinstance(value, jax.core.Tracer) or any(d.platform != "cpu" for d in value.devices()):
            return None
        return np.asarray(value)
    if is_torch_array(value):
        torch: Any = sys.modules["torch"]
        if value.device.type != "cpu" or is_compiling(value):
            return None
        if torch._C._functorch.is_functorch_wrapped_tensor(value):  # has no public name
            return None
        plain = value.detach()
        return (plain.float() if plain.dtype == torch.bfloat16 else plain).numpy()
    return np.from_dlpack(value) if hasattr(value, "__dlpack__") else np.asarray(value)


def read_values(name: str, value: Any) -> np.ndarray:
    """Any array, list or number in host memory, even if that means to wait for a device; ValueError if it is traced."""
    try:
        if is_torch_array(value):
            plain = value.detach().cpu()
            return (plain.float() if plain.dtype == sys.modules["torch"].bfloat16 else plain).numpy()
        host = np.asarray(value)
    except (TypeError, ValueError, RuntimeError):
        host = np.asarray(None)
    if host.dtype.kind == "V":  # bfloat16 of JAX
        host = host.astype(np.float32)
    if host.dtype.kind not in "biuf":
        raise ValueError(f"{name} must be an array of real numbers that can be read, got {type(value).__name__}")
    return host


def clip(xp: Any, values: Array, low: float, high: float) -> Array:
    """``xp.clip`` with two numbers, without the wrappers that make it slow on small arrays."""
    if is_numpy_namespace(xp):
        return np.minimum(np.maximum(values, low), high)
    return values.clamp(low, high) if is_torch_namespace(xp) else xp.clip(values, low, high)


def expand(xp: Any, values: Array, shape: tuple[int, ...]) -> Array:
    """``broadcast_to``, but free if there is nothing to broadcast."""
    return values if values.shape == shape else xp.broadcast_to(values, shape)


def take(xp: Any, vector: Array, index: Array) -> Array:
    """``vector[index]`` for a one-dimensional vector and an index of any shape."""
    return xp.reshape(xp.take(vector, xp.reshape(index, (-1,)), axis=0), index.shape)


def add_at(xp: Any, size: int, index: Array, values: Array) -> Array:
    """Sum ``values`` into ``size`` bins along the last axis: (..., J) -> (..., size)."""
    if is_numpy_namespace(xp):
        rows = values.size // values.shape[-1] if values.shape[-1] else 0
        offsets = size * np.arange(rows, dtype=index.dtype).reshape(*values.shape[:-1], 1)
        sums = np.bincount((index + offsets).ravel(), values.ravel(), minlength=rows * size)
        return sums.astype(values.dtype, copy=False).reshape(*values.shape[:-1], size)
    if is_torch_namespace(xp):
        zeros = xp.zeros((*values.shape[:-1], size), dtype=values.dtype, device=values.device)
        return zeros.scatter_add(-1, index, values)
    if is_jax_namespace(xp):
        flat, rows = values.reshape(-1, values.shape[-1]), index.reshape(-1, index.shape[-1])
        zeros = xp.zeros((flat.shape[0], size), dtype=values.dtype)
        summed = zeros.at[xp.arange(flat.shape[0])[:, None], rows].add(flat)
        return summed.reshape(*values.shape[:-1], size)
    bins = xp.arange(size, dtype=index.dtype, device=device(index))
    hits = index[..., None] == xp.reshape(bins, (1,) * index.ndim + (size,))
    return xp.sum(xp.where(hits, values[..., None], xp.zeros_like(values[..., None])), axis=-2)


def running_max(xp: Any, values: Array) -> Array:
    """Running maximum along the last axis, by doubling: the standard has no cumulative maximum."""
    size, step = values.shape[-1], 1
    while step < size:
        before = xp.full_like(values[..., :step], -xp.inf)
        values = xp.maximum(values, xp.concat([before, values[..., :-step]], axis=-1))
        step *= 2
    return values


def log_normal_cdf(xp: Any, values: Array) -> Array:
    """Logarithm of the standard normal CDF, accurate in both tails."""
    if is_jax_namespace(xp):
        from jax.scipy.special import log_ndtr

        return log_ndtr(values)
    if is_torch_namespace(xp):
        return xp.special.log_ndtr(values)
    from scipy.special import log_ndtr

    host = host_values(values)
    return xp.asarray(log_ndtr(host), dtype=values.dtype, device=device(values))
