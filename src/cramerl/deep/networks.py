"""Networks: pictures or vectors in, ``num_actions`` x ``num_outputs`` numbers out.

Three torsos and a last layer, as functions of nested dictionaries of arrays. A convolution is either XLA's, or patches
times one matrix. Patches are used by the small network, because it runs inside a compiled loop, where XLA's convolution
is many times slower on a CPU; and by the large one where gradients are taken on a GPU. The weights are the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from cramerl._checks import require_choice

Array = jax.Array
Params = dict[str, Any]
NETWORKS = ("nature", "nature_same", "minatar", "minatar_strided", "mlp", "linear")


class Network(NamedTuple):
    """A function in two forms, and its initial weights.

    Attributes:
        init: key -> params.
        apply: params, observations (B, *shape) -> outputs (B, A, O) float32.
        prepare: observations -> inputs (B, ...); the part that does not depend on the weights, so that many updates can
            share one pass of it.
        outputs: params, inputs -> outputs; the rest, in the form that is faster where gradients are taken.
    """

    init: Callable[[Array], Params]
    apply: Callable[[Params, Array], Array]
    prepare: Callable[[Array], Array]
    outputs: Callable[[Params, Array], Array]


@cache
def make_network(
    name: str,
    observation_shape: tuple[int, ...],
    num_actions: int,
    num_outputs: int,
    *,
    frame_scale: float = 1.0,
    hidden_units: tuple[int, ...] = (128, 128),
    last_layer_scale: float = 1.0,
    convolutions: Literal["patches", "xla"] | None = None,
) -> Network:
    """Build a network; equal arguments give the same object, so that what is compiled for it can be shared.

    Args:
        name: "nature" (three VALID convolutions and 512 units), "nature_same" (padded SAME, as Dopamine's JAX code),
            "minatar" (16 3x3 filters and 128 units), "minatar_strided" (the same with stride 2, a quarter of the
            weights, for larger pictures), "mlp", or "linear" (the last layer only, without a bias).
        observation_shape: without the batch; the last axis of pictures is the channels.
        num_actions: A.
        num_outputs: O, of the head.
        frame_scale: observations are divided by it.
        hidden_units: layer widths of "mlp".
        last_layer_scale: factor on the last layer's initial weights.
        convolutions: how "nature" convolves where gradients are taken: patches times a matrix, or XLA's convolution; by
            default the faster one on this machine.
    """
    require_choice("network", name, NETWORKS)
    if name not in ("mlp", "linear") and len(observation_shape) != 3:
        raise ValueError(
            f"network {name!r} needs pictures (height, width, channels), this environment's observations have shape "
            f"{observation_shape}; use mlp"
        )
    if convolutions is None:
        convolutions = "xla" if jax.default_backend() == "cpu" else "patches"
    acting, learning = (
        _torso(name, observation_shape, hidden_units, patches=patches) for patches in (False, convolutions == "patches")
    )
    width = acting[-1].width if acting else math.prod(observation_shape)
    last = _hidden("outputs", width, num_actions * num_outputs)

    def init(key: Array) -> Params:
        layers = [*acting, last]
        params = {
            layer.name: layer.init(k) for layer, k in zip(layers, jax.random.split(key, len(layers)), strict=True)
        }
        params["outputs"] = {key: last_layer_scale * value for key, value in params["outputs"].items()}
        if name == "linear":
            del params["outputs"]["bias"]
        return params

    def prepare(layers: list[_Layer], observations: Array) -> Array:
        return layers[0].prepare(observations) if layers else observations

    def forward(layers: list[_Layer], params: Params, inputs: Array) -> Array:
        x = inputs.astype(jnp.float32) / frame_scale if frame_scale != 1 else inputs.astype(jnp.float32)
        for i, layer in enumerate(layers):
            x = jax.nn.relu(layer.apply(params[layer.name], layer.prepare(x) if i else x))
        return last.apply(params["outputs"], x).reshape(x.shape[0], num_actions, num_outputs)

    return Network(
        init,
        apply=lambda params, observations: forward(acting, params, prepare(acting, observations)),
        prepare=partial(prepare, learning),
        outputs=partial(forward, learning),
    )


class _Layer(NamedTuple):
    name: str
    width: int  # how many numbers it returns per example
    init: Callable[[Array], Params]
    prepare: Callable[[Array], Array]  # the part without weights
    apply: Callable[[Params, Array], Array]


def _torso(name: str, shape: tuple[int, ...], hidden_units: tuple[int, ...], *, patches: bool) -> list[_Layer]:
    if name.startswith("nature"):
        padding = "SAME" if name == "nature_same" else "VALID"
        layers = []
        for i, (filters, size, stride) in enumerate(((32, 8, 4), (64, 4, 2), (64, 3, 1)), start=1):
            layer, shape = _convolution(f"conv{i}", shape, filters, size, stride, padding, patches=patches)
            layers.append(layer)
        return [*layers, _hidden("hidden1", math.prod(shape), 512)]
    if name.startswith("minatar"):
        stride = 2 if name == "minatar_strided" else 1
        if min(shape[:2]) < 3:
            raise ValueError(f"network {name} needs pictures of at least 3 x 3, got {shape[0]} x {shape[1]}; use mlp")
        layer, shape = _small_convolution("conv1", shape, filters=16, size=3, stride=stride, in_parts=patches)
        return [layer, _hidden("hidden1", math.prod(shape), 128)]
    widths = hidden_units if name == "mlp" else ()
    inputs = (math.prod(shape), *widths)
    return [_hidden(f"hidden{i}", n, m) for i, (n, m) in enumerate(zip(inputs, widths, strict=False), start=1)]


def _hidden(name: str, inputs: int, units: int) -> _Layer:
    return _Layer(
        name,
        units,
        lambda key: _dense_params(key, inputs, units),
        lambda x: x,
        lambda params, x: _dense(params, x.reshape(x.shape[0], -1)),
    )


def _convolution(
    name: str, shape: tuple[int, ...], filters: int, size: int, stride: int, padding: str, *, patches: bool
) -> tuple[_Layer, tuple[int, ...]]:
    height, width, channels = shape
    if padding == "SAME":
        after = (-(-height // stride), -(-width // stride), filters)
    else:
        after = ((height - size) // stride + 1, (width - size) // stride + 1, filters)
    if min(after) < 1:
        raise ValueError(
            f"network nature needs larger pictures: {name} has {height} x {width} left; use minatar or mlp"
        )

    def init(key: Array) -> Params:
        flat = _dense_params(key, size * size * channels, filters)
        return {"weights": flat["weights"].reshape(size, size, channels, filters), "bias": flat["bias"]}

    def by_xla(params: Params, x: Array) -> Array:
        numbers = ("NHWC", "HWIO", "NHWC")
        y = jax.lax.conv_general_dilated(x, params["weights"], (stride, stride), padding, dimension_numbers=numbers)
        return y + _row(params["bias"], y)

    def by_patches(params: Params, x: Array) -> Array:
        return _affine(x, params["weights"].reshape(-1, filters), params["bias"])

    if not patches:
        return _Layer(name, math.prod(after), init, lambda x: x, by_xla), after
    return _Layer(
        name, math.prod(after), init, lambda x: _patches(x, size, stride, after[:2], padding == "SAME"), by_patches
    ), after


def _small_convolution(
    name: str, shape: tuple[int, ...], filters: int, size: int, stride: int, *, in_parts: bool
) -> tuple[_Layer, tuple[int, ...]]:
    """A convolution without padding, by patches."""
    height, width, channels = shape
    rows, columns = ((n - size) // stride + 1 for n in (height, width))
    layer = _Layer(
        name,
        rows * columns * filters,
        lambda key: _dense_params(key, size * size * channels, filters),
        lambda x: _patches(x, size, stride, (rows, columns), same=False),
        (lambda params, x: _affine(x, params["weights"], params["bias"])) if in_parts else _dense,
    )
    return layer, (rows, columns, filters)


def _patches(x: Array, size: int, stride: int, after: tuple[int, ...], same: bool) -> Array:
    """The input of each output of a convolution: (B, H, W, C) -> (B, *after, size * size * C), rows before columns."""
    if same:
        missing = [(n - 1) * stride + size - m for n, m in zip(after, x.shape[1:3], strict=True)]
        x = jnp.pad(x, ((0, 0), *((m // 2, m - m // 2) for m in missing), (0, 0)))
    packed = x.dtype == jnp.uint8 and x.shape[-1] == 4  # move four bytes as one word
    if packed:
        x = jax.lax.bitcast_convert_type(x, jnp.uint32)[..., None]
    rows, columns = ((n - 1) * stride + 1 for n in after)
    seen = [x[:, i : i + rows : stride, j : j + columns : stride] for i in range(size) for j in range(size)]
    patches = jnp.concatenate(seen, axis=-1)
    if packed:
        patches = jax.lax.bitcast_convert_type(patches, jnp.uint8)
    return patches.reshape(*patches.shape[:3], -1)


@jax.custom_vjp
def _affine(x: Array, weights: Array, bias: Array) -> Array:
    """(B, H, W, K), (K, F), (F,) -> (B, H, W, F), with gradients summed in two stages.

    A gradient sums thousands of patches into few numbers, which leaves most of a GPU idle unless the sum is cut into
    parts: here, one for each example.
    """
    y = x @ weights
    return y + _row(bias, y)


def _affine_forward(x: Array, weights: Array, bias: Array) -> tuple[Array, tuple[Array, Array]]:
    return _affine(x, weights, bias), (x, weights)


def _affine_backward(saved: tuple[Array, Array], gradient: Array) -> tuple[Array, Array, Array]:
    x, weights = saved
    parts = jnp.einsum("bhwk,bhwf->bkf", x, gradient), jnp.sum(gradient, axis=(1, 2))
    # The barrier keeps XLA from merging the two sums into one again.
    of_weights, of_bias = jax.lax.optimization_barrier(parts)
    return gradient @ weights.T, jnp.sum(of_weights, axis=0), jnp.sum(of_bias, axis=0)


_affine.defvjp(_affine_forward, _affine_backward)


def _dense(params: Params, x: Array) -> Array:
    y = x @ params["weights"]
    return y + _row(params["bias"], y) if "bias" in params else y


def _row(bias: Array, like: Array) -> Array:
    return bias.reshape((1,) * (like.ndim - 1) + bias.shape)


def _dense_params(key: Array, inputs: int, units: int) -> Params:
    """Dopamine's initialiser for C51: uniform with variance 1 / (sqrt(3) inputs); biases are zero."""
    limit = math.sqrt(math.sqrt(3) / inputs)
    weights = jax.random.uniform(key, (inputs, units), minval=-limit, maxval=limit, dtype=jnp.float32)
    return {"weights": weights, "bias": jnp.zeros(units, dtype=jnp.float32)}
