"""Every public function on every array library: the same numbers, the same library out, the same dtype."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import array_api_strict
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import needs_torch
from oracles import SUPPORTS, proper

import cramerl

U, N = SUPPORTS["atari"], SUPPORTS["uneven"]
RNG = np.random.default_rng(7)
P, Q = proper(RNG, 4, 3, 51), RNG.normal(size=(4, 3, 51))
P7, Q7 = proper(RNG, 4, 7), RNG.normal(size=(4, 7))

# Name of the case -> (function of the arrays, the arrays).
CASES: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "total_mass": (lambda m: cramerl.total_mass(U, m), (Q,)),
    "mean": (lambda m: cramerl.mean(U, m), (Q,)),
    "variance": (lambda m: cramerl.variance(U, m), (Q,)),
    "cdf": (lambda m: cramerl.cdf(U, m), (Q,)),
    "negative_mass": (lambda m: cramerl.negative_mass(U, m), (Q,)),
    "quantile": (lambda m, a: cramerl.quantile(U, m, a), (P, RNG.random((4, 1)))),
    "quantile, number": (lambda m: cramerl.quantile(N, m, 0.3), (P7,)),
    "cvar": (lambda m, a: cramerl.cvar(U, m, a), (P, RNG.random((4, 1)))),
    "cvar, no zeros": (lambda m: cramerl.cvar(U, m, 0.3), (P + 0.01,)),
    "with_unit_mass": (lambda m: cramerl.with_unit_mass(U, m), (Q,)),
    "clipped_mass": (lambda r, g, m: cramerl.clipped_mass(U, r, g, m), (9 * P[..., 0], 0 * P[..., 0] + 0.9, P)),
    "nearest_distribution": (lambda m: cramerl.nearest_distribution(N, m), (Q7,)),
    "nearest_distribution, one": (lambda m: cramerl.nearest_distribution(N, m), (Q7[0],)),
    "rearranged_distribution": (lambda m: cramerl.rearranged_distribution(U, m), (Q,)),
    "project": (lambda x, m: cramerl.project(U, x, m), (RNG.uniform(-15, 15, (3, 51)), Q)),
    "project, uneven": (lambda x, m: cramerl.project(N, x, m), (RNG.uniform(-9, 9, (4, 7)), Q7)),
    "project, one": (lambda x, m: cramerl.project(N, x, m), (RNG.uniform(-9, 9, 2), RNG.normal(size=2))),
    "project, empty batch": (lambda x, m: cramerl.project(N, x, m), (np.zeros((0, 2)), np.zeros((0, 2)))),
    "backup": (lambda r, g, m: cramerl.backup(U, r, g, m), (RNG.normal(size=(4, 3)), RNG.random((4, 3)), Q)),
    "backup, numbers": (lambda m: cramerl.backup(U, 1, 0.99, m), (Q,)),
    "backup, one discount": (lambda r, m: cramerl.backup(N, r, 0.9, m), (RNG.normal(size=4), Q7)),
    "backup_matrix": (lambda r: cramerl.backup_matrix(N, r, 0.9), (RNG.normal(size=(2, 3)),)),
    "cramer_distance_sq": (lambda p, q: cramerl.cramer_distance_sq(U, p, q, mass_penalty=2), (P, Q[0])),
    "raw_distance_sq": (lambda p, q: cramerl.raw_distance_sq(N, p, q, "tail"), (P7, Q7)),
    "unit_mass_basis, masses": (cramerl.unit_mass_basis(N).masses, (Q7[:, :6],)),
    "unit_mass_basis, outputs": (cramerl.unit_mass_basis(N).outputs, (Q7,)),
    "project_affine": (
        lambda m, b: cramerl.project_affine(N, m, [[1] * 7, [1, 0, 2, 0, 0, 0, 1]], b, 0.5),
        (Q7, RNG.normal(size=2)),
    ),
    "cramer_loss": (lambda p, q: cramerl.cramer_loss(U, p, q, 10.0), (P, Q)),
    "cramer_loss, total": (lambda p, q: cramerl.cramer_loss(N, p, q, 1, "total"), (P7[0], Q7)),
    "cramer_loss, mean": (lambda p, q: cramerl.cramer_loss(N, p, q, 1, mean_weight=0.5), (P7, Q7)),
    "categorical_cross_entropy": (cramerl.categorical_cross_entropy, (P7, Q7)),
    "cdf_cross_entropy": (cramerl.cdf_cross_entropy, (P7, Q7[:, :6])),
    "masses_of_cdf_logits": (cramerl.masses_of_cdf_logits, (Q7,)),
    "quantile_huber": (cramerl.quantile_huber, (Q7, RNG.normal(size=(4, 5)))),
    "quantile_huber, levels": (lambda y, t, a: cramerl.quantile_huber(y, t, a, 0.5), (Q7, Q7, RNG.random(7))),
    "hl_gauss_targets": (lambda v: cramerl.hl_gauss_targets(U, v, 0.3), (RNG.uniform(-12, 12, (4, 3)),)),
    "td_squared": (cramerl.td_squared, (Q7, P7[0])),
    "td_huber": (lambda y, v: cramerl.td_huber(y, v, 0.7), (Q7, P7)),
}
BATCHED = [
    name for name, (_, arrays) in CASES.items() if len({a.shape[:1] for a in arrays}) == 1 and arrays[0].shape[0] == 4
]
# Left out: functions that are constant between jumps, and a measure with zero masses, where cvar has a kink.
SMOOTH = [
    name
    for name in CASES
    if name not in ("quantile", "quantile, number", "project, empty batch", "cvar", "clipped_mass")
]
# These stand for all where JAX would compile every operation on its own.
SOME = ["mean", "quantile", "backup", "cramer_loss"]


@pytest.mark.parametrize("case", CASES)
def test_agrees_with_numpy(case, library):
    """And a row alone gives what it gives in a batch; in JAX by a program and by mapping it over the rows."""
    function, arrays = CASES[case]
    expected = function(*arrays)
    assert expected.dtype == np.float64
    inputs = [library.array(a) for a in arrays]
    if library.name == "jax":
        mapped = jax.vmap(function) if case in BATCHED else function
        result, rows = jax.jit(lambda *given: (function(*given), mapped(*given)))(*inputs)
        np.testing.assert_allclose(rows, expected, rtol=1e-11, atol=1e-11)
    else:
        result = function(*inputs)
        if case in BATCHED:
            row = function(*(a[1, ...] for a in inputs))
            np.testing.assert_allclose(library.numpy(row), expected[1], rtol=1e-11, atol=1e-11)
    assert result.dtype == library.module.float64
    assert tuple(result.shape) == expected.shape
    np.testing.assert_allclose(library.numpy(result), expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("kind", ["numpy", "strict", pytest.param("torch", marks=needs_torch)])
@pytest.mark.parametrize("case", CASES)
def test_float32_stays_float32(case, kind):
    function, arrays = CASES[case]
    module = {"numpy": np, "strict": array_api_strict}.get(kind) or pytest.importorskip("torch")
    result = function(*(module.asarray(a.astype(np.float32)) for a in arrays))
    assert result.dtype == module.float32
    if not case.startswith("quantile"):  # a rounded level may fall on the next atom
        np.testing.assert_allclose(np.from_dlpack(result), function(*arrays), rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("case", CASES)
def test_jax_traces_in_the_default_precision(case):
    """Arguments, and arrays from outside the trace: their values are known inside it and must not be traced."""
    function, arrays = CASES[case]
    inputs = [jnp.asarray(a, jnp.float32) for a in arrays]
    traced, closed = jax.eval_shape(lambda *given: (function(*given), function(*inputs)), *inputs)
    assert traced.dtype == closed.dtype == jnp.float32
    assert traced.shape == closed.shape == np.shape(function(*arrays))


@pytest.mark.parametrize("case", SOME)
def test_jax_in_the_default_precision(case):
    """With jit and without."""
    function, arrays = CASES[case]
    inputs = [np.asarray(a, np.float32) for a in arrays]
    given = [jnp.asarray(a) for a in inputs]
    for result in (jax.jit(function)(*given), function(*given)):
        assert isinstance(result, jax.Array)
        assert result.dtype == jnp.float32
        np.testing.assert_allclose(result, function(*inputs), rtol=1e-4, atol=1e-5)


@functools.cache
def jax_gradients(case: str) -> tuple[Any, list[Any], float, tuple[Any, ...]]:
    """Weights of the outputs, a random direction, and of the weighted sum the slope along it and the gradients."""
    function, arrays = CASES[case]
    rng = np.random.default_rng(len(case))
    weights, directions = rng.normal(size=np.shape(function(*arrays))), [rng.normal(size=a.shape) for a in arrays]

    def scalar(*given):
        return (function(*given) * weights).sum()

    @jax.jit
    def slopes(inputs, directions):
        gradients = jax.grad(scalar, argnums=tuple(range(len(arrays))))(*inputs)
        return jax.jvp(scalar, inputs, directions)[1], gradients

    with jax.enable_x64(True):
        slope, gradients = slopes(tuple(map(jnp.asarray, arrays)), tuple(map(jnp.asarray, directions)))
        return weights, directions, float(slope), tuple(map(np.asarray, gradients))


@pytest.mark.parametrize("case", SMOOTH)
def test_gradients_agree_with_differences(case):
    """Along a random direction, in JAX, against a central difference in NumPy."""
    function, arrays = CASES[case]
    weights, directions, slope, gradients = jax_gradients(case)
    ahead, behind = ([a + s * 1e-6 * d for a, d in zip(arrays, directions, strict=True)] for s in (1, -1))
    difference = ((function(*ahead) - function(*behind)) * weights).sum() / 2e-6
    assert slope == pytest.approx(difference, rel=1e-4, abs=1e-4)
    backward = sum(float((g * d).sum()) for g, d in zip(gradients, directions, strict=True))
    assert backward == pytest.approx(slope, rel=1e-9, abs=1e-9)


@needs_torch
@pytest.mark.parametrize("case", SMOOTH)
def test_torch_gradients_equal_jax_gradients(case):
    import torch

    function, arrays = CASES[case]
    weights, _, _, expected = jax_gradients(case)
    tensors = [torch.tensor(a, requires_grad=True) for a in arrays]
    (function(*tensors) * torch.tensor(weights)).sum().backward()
    for tensor, gradient in zip(tensors, expected, strict=True):
        assert tensor.grad is not None
        np.testing.assert_allclose(tensor.grad.numpy(), gradient, rtol=1e-8, atol=1e-8)


@needs_torch
@pytest.mark.parametrize("case", ["cramer_loss", "backup, numbers", "cvar"])
@pytest.mark.filterwarnings("ignore:.*lru_cache")  # array-api-compat's, seen by the compiler
def test_torch_compiles_whole(case):
    import torch

    function, arrays = CASES[case]
    tensors = [torch.tensor(a) for a in arrays]
    compiled = torch.compile(function, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(*tensors), function(*tensors), rtol=1e-12, atol=1e-12)


@needs_torch
def test_torch_gradients_after_inference_mode():
    """Constants made in one mode serve the other."""
    import torch

    support = cramerl.Support([0.0, 0.5, 7.0])  # used nowhere else
    with torch.inference_mode():
        cramerl.cramer_loss(support, torch.ones(3), torch.ones(3), 1.0)
    prediction = torch.ones(3, requires_grad=True)
    cramerl.cramer_loss(support, torch.ones(3), prediction, 1.0).backward()
    assert prediction.grad is not None


@needs_torch
def test_torch_vmap_passes_the_value_checks():
    import torch

    q = torch.tensor(Q7, dtype=torch.float32)
    mapped: Any = torch.func.vmap(lambda m: cramerl.cramer_loss(N, torch.ones(7) / 7, m, 1.0))(q)
    torch.testing.assert_close(mapped, cramerl.cramer_loss(N, torch.ones(7) / 7, q, 1.0))


def test_integers_and_lists_become_floats():
    assert cramerl.mean(N, [0, 0, 0, 0, 0, 1, 0]) == 7.0
    assert cramerl.mean(N, np.eye(7, dtype=int)).dtype == np.float64
    assert cramerl.mean(N, jnp.eye(7, dtype=int)).dtype == jnp.float32


def test_numpy_arguments_follow_the_other_library():
    result = jax.jit(lambda masses: cramerl.backup(N, np.zeros(4), 0.9, masses))(jnp.asarray(Q7))
    assert isinstance(result, jax.Array)
    assert result.dtype == jnp.float32


def test_settings_do_not_widen_the_result():
    small = P7.astype(np.float32)
    assert cramerl.cramer_loss(N, small, small, np.float64(10)).dtype == np.float32
    assert cramerl.hl_gauss_targets(N, small[0], np.float64(0.5)).dtype == np.float32
    assert cramerl.td_huber(small, small, np.array(1.0)).dtype == np.float32


def test_dtypes_promote_within_a_library():
    assert cramerl.project(N, np.zeros(2, np.float32), np.ones(2)).dtype == np.float64


@needs_torch
def test_two_libraries_are_refused():
    import torch

    with pytest.raises(TypeError, match=r"one array library, got p from .* q from"):
        cramerl.cramer_distance_sq(N, torch.ones(7), jnp.ones(7))


def test_support_as_static_argument_and_traced_penalty():
    @jax.jit
    def losses(penalties):
        return jax.vmap(lambda lam: cramerl.cramer_loss(N, jnp.asarray(P7[0]), jnp.asarray(Q7[0]), lam))(penalties)

    each = [cramerl.cramer_loss(N, P7[0], Q7[0], lam) for lam in (0.0, 1.0, 10.0)]
    np.testing.assert_allclose(losses(jnp.asarray([0.0, 1.0, 10.0])), each, rtol=1e-5)


def test_bad_values_show_in_the_result_under_jit():
    nan = jax.jit(lambda m: cramerl.mean(N, m))(jnp.full(7, jnp.nan))
    assert np.isnan(nan)
    nothing = jax.jit(lambda m: cramerl.quantile(N, m, 0.5))(-jnp.ones(7))
    assert np.isnan(nothing)
