"""Networks: against convolutions and matrix products written out, and counts done by hand."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cramerl.deep.networks import NETWORKS, make_network

ACTIONS, OUTPUTS = 3, 5
# The least that is interesting for each: not square, more than one channel, a stride that does not divide.
SHAPES = {
    "nature": (37, 40, 2),
    "nature_same": (9, 14, 2),
    "minatar": (5, 4, 3),
    "minatar_strided": (8, 7, 3),
    "mlp": (2, 3),
    "linear": (2, 3),
}
every_network = pytest.mark.parametrize("name", NETWORKS)


@pytest.fixture(scope="module", autouse=True)
def compile_quickly():
    """Much is compiled here and run once."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def build(name, shape=None, **options):
    return make_network(name, shape or SHAPES[name], ACTIONS, OUTPUTS, **options)


def random_params(network, seed=0):
    """Of the right shapes and sizes, with biases that are not zero."""
    rng = np.random.default_rng(seed)
    shapes = jax.eval_shape(network.init, jax.random.key(0))
    return jax.tree.map(lambda p: jnp.asarray(rng.normal(size=p.shape) / p.size**0.5 * 2, jnp.float32), shapes)


def shapes_of(network):
    params = jax.eval_shape(network.init, jax.random.key(0))
    return jax.tree.map(lambda p: p.shape, params)


def count(network):
    leaves = jax.tree.leaves(jax.eval_shape(network.init, jax.random.key(0)))
    return sum(math.prod(leaf.shape) for leaf in leaves)


# Twins.


def convolve(pictures, weights, bias, stride, padding):
    """One output pixel at a time, in float64; SAME puts the odd row and column at the end, as TensorFlow does."""
    size = weights.shape[0]
    if padding == "SAME":
        missing = [max((-(-n // stride) - 1) * stride + size - n, 0) for n in pictures.shape[1:3]]
        pictures = np.pad(pictures, [(0, 0), *((m // 2, m - m // 2) for m in missing), (0, 0)])
    rows, columns = ((n - size) // stride + 1 for n in pictures.shape[1:3])
    result = np.zeros((len(pictures), rows, columns, weights.shape[-1]))
    for i in range(rows):
        for j in range(columns):
            window = pictures[:, i * stride : i * stride + size, j * stride : j * stride + size]
            result[:, i, j] = np.tensordot(window, weights, 3) + bias
    return result


def twin(name, params, observations):
    """Relu after every layer but the last."""
    params = jax.tree.map(lambda p: np.asarray(p, np.float64), params)
    x = np.asarray(observations, np.float64)
    small = {"minatar": {"conv1": 1}, "minatar_strided": {"conv1": 2}}
    strides = small.get(name, {"conv1": 4, "conv2": 2, "conv3": 1})
    for layer in sorted(set(params) - {"outputs"}):  # conv1, conv2, conv3, hidden1, hidden2
        weights, bias = params[layer]["weights"], params[layer]["bias"]
        if layer.startswith("conv"):
            weights = weights.reshape(3, 3, -1, 16) if name in small else weights
            x = convolve(x, weights, bias, strides[layer], "SAME" if name == "nature_same" else "VALID")
        else:
            x = x.reshape(len(x), -1) @ weights + bias
        x = np.maximum(x, 0)
    y = x.reshape(len(x), -1) @ params["outputs"]["weights"] + params["outputs"].get("bias", 0)
    return y.reshape(len(x), ACTIONS, OUTPUTS)


# What it computes.


@every_network
def test_apply_is_the_twins_and_rows_do_not_mix(name, rng):
    network = build(name)
    params = random_params(network)
    observations = jnp.asarray(rng.normal(size=(3, *SHAPES[name])), jnp.float32)
    apply = jax.jit(network.apply)
    outputs = apply(params, observations)
    assert outputs.shape == (3, ACTIONS, OUTPUTS)
    assert outputs.dtype == jnp.float32
    np.testing.assert_allclose(outputs, twin(name, params, observations), rtol=1e-4, atol=1e-4)
    for i in range(3):
        np.testing.assert_allclose(apply(params, observations[i : i + 1])[0], outputs[i], rtol=1e-4, atol=1e-5)


def test_sliced_convolution_is_a_convolution(rng):
    """Hidden and last layers that hand on what the convolution gives: 3 x 2 x 16 numbers, none negative."""
    network = make_network("minatar", (5, 4, 3), 128, 1)
    params = {
        "conv1": random_params(network)["conv1"],
        "hidden1": {"weights": np.eye(96, 128, dtype=np.float32), "bias": np.zeros(128, np.float32)},
        "outputs": {"weights": np.eye(128, dtype=np.float32), "bias": np.zeros(128, np.float32)},
    }
    observations = jnp.asarray(rng.normal(size=(2, 5, 4, 3)), jnp.float32)
    kernel = params["conv1"]["weights"].reshape(3, 3, 3, 16)
    numbers = ("NHWC", "HWIO", "NHWC")
    convolved = jax.lax.conv_general_dilated(observations, kernel, (1, 1), "VALID", dimension_numbers=numbers)
    expected = np.maximum(np.asarray(convolved) + np.asarray(params["conv1"]["bias"]), 0)
    outputs = np.asarray(jax.jit(network.apply)(params, observations))[:, :, 0]
    np.testing.assert_allclose(outputs[:, :96], expected.reshape(2, 96), rtol=1e-4, atol=1e-5)
    assert not outputs[:, 96:].any()


def test_linear_is_a_matrix_product(rng):
    network = build("linear")
    params = random_params(network)
    assert shapes_of(network) == {"outputs": {"weights": (6, ACTIONS * OUTPUTS)}}
    observations = rng.normal(size=(4, 2, 3)).astype(np.float32)
    product = observations.reshape(4, 6) @ np.asarray(params["outputs"]["weights"])
    outputs = network.apply(params, jnp.asarray(observations))
    np.testing.assert_allclose(outputs, product.reshape(4, ACTIONS, OUTPUTS), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["minatar", "mlp", "linear"])
def test_frames_are_divided_by_their_scale(name, rng):
    frames = rng.integers(0, 256, (2, *SHAPES[name]), dtype=np.uint8)
    params = random_params(build(name))
    scaled = build(name, frame_scale=255.0).apply(params, jnp.asarray(frames))
    np.testing.assert_allclose(scaled, twin(name, params, frames / 255), rtol=1e-4, atol=1e-4)
    assert scaled.dtype == jnp.float32


def test_true_and_false_are_one_and_zero(rng):
    """MinAtar's pictures."""
    network, frames = build("minatar"), rng.random((2, 5, 4, 3)) < 0.3
    params = random_params(network)
    outputs = network.apply(params, jnp.asarray(frames))
    np.testing.assert_array_equal(outputs, network.apply(params, jnp.asarray(frames, jnp.float32)))


# Sizes.


@pytest.mark.parametrize(("name", "flat"), [("nature", 7 * 7 * 64), ("nature_same", 11 * 11 * 64)])
def test_nature_sizes(name, flat):
    network = make_network(name, (84, 84, 4), 6, 51, frame_scale=255.0)
    assert shapes_of(network) == {
        "conv1": {"weights": (8, 8, 4, 32), "bias": (32,)},
        "conv2": {"weights": (4, 4, 32, 64), "bias": (64,)},
        "conv3": {"weights": (3, 3, 64, 64), "bias": (64,)},
        "hidden1": {"weights": (flat, 512), "bias": (512,)},
        "outputs": {"weights": (512, 306), "bias": (306,)},
    }
    params = jax.eval_shape(network.init, jax.random.key(0))
    outputs = jax.eval_shape(network.apply, params, jax.ShapeDtypeStruct((32, 84, 84, 4), jnp.uint8))
    assert outputs.shape == (32, 6, 51)
    assert outputs.dtype == jnp.float32


@pytest.mark.parametrize(
    ("name", "shape", "options", "parameters"),
    [
        ("nature", (84, 84, 4), {}, 8_224 + 32_832 + 36_928 + 1_606_144 + 513 * 15),
        ("nature_same", (84, 84, 4), {}, 8_224 + 32_832 + 36_928 + 3_965_440 + 513 * 15),
        ("minatar", (10, 10, 4), {}, 37 * 16 + 1025 * 128 + 129 * 15),
        ("minatar_strided", (30, 40, 3), {}, 28 * 16 + (14 * 19 * 16 + 1) * 128 + 129 * 15),
        ("mlp", (4,), {}, 5 * 128 + 129 * 128 + 129 * 15),
        ("mlp", (2, 3), {"hidden_units": (7,)}, 7 * 7 + 8 * 15),
        ("mlp", (4,), {"hidden_units": ()}, 5 * 15),
        ("linear", (4,), {}, 4 * 15),
    ],
)
def test_number_of_parameters(name, shape, options, parameters):
    assert count(build(name, shape, **options)) == parameters


# How parameters begin.


@every_network
def test_initial_weights_are_uniform_and_biases_zero(name):
    for layer in build(name).init(jax.random.key(1)).values():
        weights = np.asarray(layer["weights"], np.float64)
        fan_in = weights[..., 0].size
        limit = math.sqrt(math.sqrt(3) / fan_in)
        error = 1 / math.sqrt(weights.size)
        assert layer["weights"].dtype == jnp.float32
        assert 0.8 * limit < np.abs(weights).max() <= limit * (1 + 1e-6)
        assert abs(weights.mean()) < 4 * error * limit / math.sqrt(3)
        assert np.mean(weights**2) == pytest.approx(1 / (math.sqrt(3) * fan_in), rel=4 * error)
        if "bias" in layer:
            assert layer["bias"].dtype == jnp.float32
            assert not layer["bias"].any()


@pytest.mark.parametrize("name", ["minatar", "mlp", "linear"])
def test_same_key_same_weights_and_other_key_others(name):
    network = build(name)
    first, again, other = (network.init(jax.random.key(seed)) for seed in (1, 1, 2))
    for layer in first:
        np.testing.assert_array_equal(first[layer]["weights"], again[layer]["weights"])
        assert (first[layer]["weights"] != other[layer]["weights"]).mean() > 0.99


def test_layers_of_one_shape_begin_differently():
    params = make_network("mlp", (8,), 2, 4, hidden_units=(8, 8)).init(jax.random.key(0))
    layers = [np.asarray(params[layer]["weights"]) for layer in ("hidden1", "hidden2", "outputs")]
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert (layers[i] != layers[j]).mean() > 0.99


@pytest.mark.parametrize("name", ["minatar", "mlp", "linear"])
def test_last_layer_scale(name, rng):
    full, half, none = (build(name, last_layer_scale=s).init(jax.random.key(0)) for s in (1.0, 0.5, 0.0))
    np.testing.assert_allclose(half["outputs"]["weights"], full["outputs"]["weights"] / 2, rtol=1e-6)
    for layer in set(full) - {"outputs"}:
        np.testing.assert_array_equal(none[layer]["weights"], full[layer]["weights"])
    observations = jnp.asarray(rng.normal(size=(2, *SHAPES[name])), jnp.float32)
    assert not build(name, last_layer_scale=0.0).apply(none, observations).any()


# What it refuses.


def test_unknown_network():
    with pytest.raises(ValueError, match=r"network must be one of 'nature', .*'linear', got 'impala'"):
        build("impala", (84, 84, 4))


@pytest.mark.parametrize("shape", [(4,), (84, 84), (1, 84, 84, 4)], ids=str)
@pytest.mark.parametrize("name", ["nature", "nature_same", "minatar", "minatar_strided"])
def test_convolutions_need_pictures(name, shape):
    with pytest.raises(ValueError, match=rf"network '{name}' needs pictures \(height, width, channels\), .*; use mlp"):
        build(name, shape)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("nature", (35, 84, 4)),
        ("nature", (84, 35, 4)),
        ("nature", (7, 84, 4)),
        ("nature", (3, 3, 4)),
        ("minatar", (2, 10, 4)),
        ("minatar", (10, 2, 4)),
        ("minatar_strided", (10, 2, 4)),
    ],
)
def test_small_pictures_are_refused(name, shape):
    with pytest.raises(ValueError, match=rf"network {name} needs .*\d+ x \d+.*; use .*mlp"):
        build(name, shape)


@pytest.mark.parametrize(
    ("name", "shape", "flat"),
    [
        ("nature", (36, 36, 1), 64),
        ("nature_same", (1, 1, 1), 64),
        ("minatar", (3, 3, 1), 16),
        ("minatar_strided", (4, 4, 1), 16),
    ],
)
def test_the_smallest_pictures(name, shape, flat):
    assert shapes_of(build(name, shape))["hidden1"]["weights"][0] == flat


CONVOLVED = [
    pytest.param("nature", (60, 52, 4), np.uint8, marks=pytest.mark.slow),
    ("nature_same", (37, 30, 4), np.uint8),
    pytest.param("nature_same", (24, 24, 3), np.float32, marks=pytest.mark.slow),
    ("minatar", (6, 5, 3), np.float32),
    ("minatar_strided", (8, 7, 3), np.float32),
]


@pytest.mark.parametrize(("name", "shape", "dtype"), CONVOLVED)
def test_convolutions_as_patches_are_convolutions(name, shape, dtype, rng):
    """The form for gradients on a GPU gives the outputs and the gradients of the other one."""
    plain, patched = (make_network(name, shape, 2, 3, frame_scale=255.0, convolutions=c) for c in ("xla", "patches"))
    params, other = (network.init(jax.random.key(0)) for network in (plain, patched))
    jax.tree.map(np.testing.assert_array_equal, params, other)
    seen = jnp.asarray(rng.integers(0, 256, (3, *shape)).astype(dtype))
    weights = jnp.asarray(rng.normal(size=(3, 2, 3)).astype(np.float32))

    def outputs_and_gradient(network):
        inputs = network.prepare(seen)
        return jax.jit(jax.value_and_grad(lambda p: jnp.sum(weights * network.outputs(p, inputs))))(params)

    found, expected = outputs_and_gradient(patched), outputs_and_gradient(plain)
    np.testing.assert_allclose(plain.apply(params, seen), patched.outputs(params, patched.prepare(seen)), atol=1e-6)
    assert all(np.any(np.asarray(leaf)) for leaf in jax.tree.leaves(expected))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), found, expected)
