"""Networks: pictures or vectors in, ``num_actions`` x ``num_outputs`` numbers out.

Three torsos and a last layer, as functions of plain nested dictionaries of arrays. Convolutions of the small network
are slices and one matrix product: on a CPU, inside a compiled loop, XLA's convolution is many times slower.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

Array = jax.Array
Params = dict[str, Any]
NETWORKS = ("nature", "nature_same", "minatar", "mlp", "linear")


class Network(NamedTuple):
    """A function and how its parameters begin.

    Attributes:
        init: key -> params.
        apply: params, observations (B, *shape) -> outputs (B, A, O) float32.
    """

    init: Callable[[Array], Params]
    apply: Callable[[Params, Array], Array]


def make_network(
    name: str,
    observation_shape: tuple[int, ...],
    num_actions: int,
    num_outputs: int,
    *,
    frame_scale: float = 1.0,
    hidden_units: tuple[int, ...] = (128, 128),
    last_layer_scale: float = 1.0,
) -> Network:
    """Build a network.

    Args:
        name: "nature" (three VALID convolutions and 512 units), "nature_same" (padded SAME, as Dopamine's JAX code),
            "minatar" (16 3x3 filters and 128 units), "mlp", or "linear" (the last layer only, without a bias).
        observation_shape: without the batch; pictures end with channels.
        num_actions: A.
        num_outputs: O, of the head.
        frame_scale: observations are divided by it.
        hidden_units: of "mlp".
        last_layer_scale: factor on the last layer's initial weights.
    """
    if name not in NETWORKS:
        raise ValueError(f"network must be one of {', '.join(NETWORKS)}, got {name!r}")
    if name in ("nature", "nature_same", "minatar") and len(observation_shape) != 3:
        raise ValueError(
            f"network {name!r} needs pictures (height, width, channels), this environment's observations have shape "
            f"{observation_shape}; use mlp"
        )
    layers = _torso(name, observation_shape, hidden_units)
    width = layers[-1].width if layers else math.prod(observation_shape)

    def init(key: Array) -> Params:
        keys = jax.random.split(key, len(layers) + 1)
        params = {layer.name: layer.init(k) for layer, k in zip(layers, keys[:-1], strict=True)}
        last = _dense_params(keys[-1], width, num_actions * num_outputs)
        params["outputs"] = {"weights": last_layer_scale * last["weights"], "bias": last_layer_scale * last["bias"]}
        if name == "linear":
            del params["outputs"]["bias"]
        return params

    def apply(params: Params, observations: Array) -> Array:
        x = observations.astype(jnp.float32) / frame_scale if frame_scale != 1 else observations.astype(jnp.float32)
        for layer in layers:
            x = jax.nn.relu(layer.apply(params[layer.name], x))
        outputs = _dense(params["outputs"], x.reshape(x.shape[0], -1))
        return outputs.reshape(x.shape[0], num_actions, num_outputs)

    return Network(init, apply)


class _Layer(NamedTuple):
    name: str
    width: int  # numbers it returns per example
    init: Callable[[Array], Params]
    apply: Callable[[Params, Array], Array]


def _torso(name: str, shape: tuple[int, ...], hidden_units: tuple[int, ...]) -> list[_Layer]:
    if name.startswith("nature"):
        padding = "SAME" if name == "nature_same" else "VALID"
        layers = []
        for i, (filters, size, stride) in enumerate(((32, 8, 4), (64, 4, 2), (64, 3, 1)), start=1):
            layer, shape = _convolution(f"conv{i}", shape, filters, size, stride, padding)
            layers.append(layer)
        return [*layers, _hidden("hidden1", math.prod(shape), 512)]
    if name == "minatar":
        layer, shape = _sliced_convolution("conv1", shape, filters=16, size=3)
        return [layer, _hidden("hidden1", math.prod(shape), 128)]
    widths = hidden_units if name == "mlp" else ()
    inputs = (math.prod(shape), *widths)
    return [_hidden(f"hidden{i}", n, m) for i, (n, m) in enumerate(zip(inputs, widths, strict=False), start=1)]


def _hidden(name: str, inputs: int, units: int) -> _Layer:
    return _Layer(
        name,
        units,
        lambda key: _dense_params(key, inputs, units),
        lambda params, x: _dense(params, x.reshape(x.shape[0], -1)),
    )


def _convolution(
    name: str, shape: tuple[int, ...], filters: int, size: int, stride: int, padding: str
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

    def apply(params: Params, x: Array) -> Array:
        numbers = ("NHWC", "HWIO", "NHWC")
        y = jax.lax.conv_general_dilated(x, params["weights"], (stride, stride), padding, dimension_numbers=numbers)
        return y + _row(params["bias"], y)

    return _Layer(name, math.prod(after), init, apply), after


def _sliced_convolution(name: str, shape: tuple[int, ...], filters: int, size: int) -> tuple[_Layer, tuple[int, ...]]:
    """VALID, stride one: the size x size shifted copies side by side, times one matrix."""
    height, width, channels = shape
    rows, columns = height - size + 1, width - size + 1
    if min(rows, columns) < 1:
        raise ValueError(f"network minatar needs pictures of at least 3 x 3, got {height} x {width}; use mlp")

    def apply(params: Params, x: Array) -> Array:
        shifts = [x[:, i : i + rows, j : j + columns] for i in range(size) for j in range(size)]
        return _dense(params, jnp.concatenate(shifts, axis=-1))

    layer = _Layer(
        name, rows * columns * filters, lambda key: _dense_params(key, size * size * channels, filters), apply
    )
    return layer, (rows, columns, filters)


def _dense(params: Params, x: Array) -> Array:
    y = x @ params["weights"]
    return y + _row(params["bias"], y) if "bias" in params else y


def _row(bias: Array, like: Array) -> Array:
    return bias.reshape((1,) * (like.ndim - 1) + bias.shape)


def _dense_params(key: Array, inputs: int, units: int) -> Params:
    """Dopamine's initialiser for C51: uniform, variance 1 / (sqrt(3) inputs); biases zero."""
    limit = math.sqrt(math.sqrt(3) / inputs)
    weights = jax.random.uniform(key, (inputs, units), minval=-limit, maxval=limit, dtype=jnp.float32)
    return {"weights": weights, "bias": jnp.zeros(units, dtype=jnp.float32)}
