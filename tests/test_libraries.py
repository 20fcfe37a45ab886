"""Every public function on every array library: the same numbers, the same library out, the same dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
    "nearest_distribution, one": (lambda m: cramerl.nearest_distribution(U, m), (Q[0, 0],)),
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


@pytest.mark.parametrize("case", CASES)
def test_agrees_with_numpy(case, library):
    function, arrays = CASES[case]
    expected = function(*arrays)
    assert expected.dtype == np.float64
    result = function(*map(library.array, arrays))
    assert result.dtype == library.module.float64
    assert tuple(result.shape) == expected.shape
    np.testing.assert_allclose(library.numpy(result), expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("case", BATCHED)
def test_acts_on_one_row_as_on_a_batch(case, library):
    """jax.vmap, or plain indexing, over the first axis gives what the batched call gives."""
    function, arrays = CASES[case]
    whole = library.numpy(function(*map(library.array, arrays)))
    row = library.numpy(function(*(library.array(a[1]) for a in arrays)))
    np.testing.assert_allclose(row, whole[1], rtol=1e-12, atol=1e-12)
    if library.name == "jax":
        mapped = jax.jit(jax.vmap(function))(*map(library.array, arrays))
        np.testing.assert_allclose(mapped, whole, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("case", CASES)
def test_float32_stays_float32(case, library):
    function, arrays = CASES[case]
    small = (
        [library.module.astype(library.array(a), library.module.float32) for a in arrays]
        if (library.name != "torch")
        else [library.array(a).float() for a in arrays]
    )
    result = function(*small)
    assert result.dtype == library.module.float32
    if not case.startswith("quantile"):  # a rounded level may fall on the next atom
        np.testing.assert_allclose(library.numpy(result), function(*arrays), rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("case", CASES)
def test_jit_gives_the_same_in_the_default_precision(case):
    function, arrays = CASES[case]
    inputs = [np.asarray(a, np.float32) for a in arrays]
    result = jax.jit(function)(*map(jnp.asarray, inputs))
    assert result.dtype == jnp.float32
    np.testing.assert_allclose(result, function(*inputs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", SMOOTH)
def test_gradients_agree_with_differences(case, x64):
    """Along a random direction, in JAX, against a central difference in NumPy."""
    function, arrays = CASES[case]
    weights = RNG.normal(size=np.shape(function(*arrays)))
    directions = [RNG.normal(size=a.shape) for a in arrays]

    def scalar(*args):
        return (function(*args) * weights).sum()

    inputs = tuple(map(jnp.asarray, arrays))
    _, slope = jax.jit(lambda *given: jax.jvp(scalar, *given))(inputs, tuple(map(jnp.asarray, directions)))
    gradients = jax.jit(jax.grad(scalar, argnums=tuple(range(len(arrays)))))(*inputs)
    ahead, behind = ([a + s * 1e-6 * d for a, d in zip(arrays, directions, strict=True)] for s in (1, -1))
    difference = (scalar(*ahead) - scalar(*behind)) / 2e-6
    assert float(slope) == pytest.approx(difference, rel=1e-4, abs=1e-4)
    backward = sum(float((g * d).sum()) for g, d in zip(gradients, directions, strict=True))
    assert backward == pytest.approx(float(slope), rel=1e-9, abs=1e-9)


@needs_torch
@pytest.mark.parametrize("case", SMOOTH)
def test_torch_gradients_equal_jax_gradients(case, x64):
    import torch

    function, arrays = CASES[case]
    weights = RNG.normal(size=np.shape(function(*arrays)))
    tensors = [torch.tensor(a, requires_grad=True) for a in arrays]
    (function(*tensors) * torch.tensor(weights)).sum().backward()
    gradient_of = jax.grad(lambda *a: (function(*a) * weights).sum(), argnums=tuple(range(len(arrays))))
    expected = jax.jit(gradient_of)(*map(jnp.asarray, arrays))
    for tensor, gradient in zip(tensors, expected, strict=True):
        assert tensor.grad is not None
        np.testing.assert_allclose(tensor.grad.numpy(), gradient, rtol=1e-8, atol=1e-8)


@needs_torch
@pytest.mark.parametrize("case", ["cramer_loss", "backup, numbers", "cvar", "project", "categorical_cross_entropy"])
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
    result = cramerl.backup(N, np.zeros(4), 0.9, jnp.asarray(Q7))
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


@pytest.mark.parametrize("case", CASES)
def test_jit_closes_over_arrays(case):
    """Arrays from outside a trace are known inside it; looking at them must not trip over the trace."""
    function, arrays = CASES[case]
    inputs = [jnp.asarray(a) for a in arrays]
    result = jax.jit(lambda: function(*inputs))()
    np.testing.assert_allclose(result, function(*inputs), rtol=1e-4, atol=1e-5)


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
