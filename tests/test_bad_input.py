"""A sentence that names the argument, what was given and what is allowed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cramerl
from cramerl import Support

S = Support([-1.0, 0.0, 2.0])
GOOD = np.array([0.2, 0.3, 0.5])
NAN, INF = np.array([0.2, np.nan, 0.5]), np.array([0.2, np.inf, 0.5])
WIDE = np.ones(4)

MASS_FUNCTIONS = [
    "total_mass",
    "mean",
    "variance",
    "cdf",
    "negative_mass",
    "nearest_distribution",
    "rearranged_distribution",
]
LAST_AXIS = r"must have a last axis of 3 \(.*\), got shape \(4,\)"


@pytest.mark.parametrize("name", MASS_FUNCTIONS)
def test_masses(name):
    function = getattr(cramerl, name)
    with pytest.raises(ValueError, match="masses " + LAST_AXIS):
        function(S, WIDE)
    with pytest.raises(ValueError, match=r"masses must have a last axis .* got shape \(\)"):
        function(S, 1.0)
    with pytest.raises(ValueError, match="masses must be finite, got nan"):
        function(S, NAN)
    with pytest.raises(ValueError, match="masses must be finite, got inf"):
        function(S, jnp.asarray(INF))
    with pytest.raises(ValueError, match="masses must hold real numbers"):
        function(S, GOOD.astype(complex))
    with pytest.raises(ValueError, match="masses must hold real numbers, got 'abc'"):
        function(S, "abc")
    with pytest.raises(ValueError, match="masses must be an array of real numbers"):
        function(S, [[1.0, 2.0, 3.0], [1.0]])
    with pytest.raises(ValueError, match="support must be a Support, got"):
        function([0.0, 1.0, 2.0], GOOD)


FAR = Support.uniform(1e8, 1e8 + 4, 5)  # one atom in float32
CALLS = {
    "atoms run together in float32": (
        lambda: cramerl.backup(FAR, 0.0, 1.0, np.ones(5, np.float32)),
        "support must have atoms that differ in float32, got Support.uniform",
    ),
    "atoms overflow in float32": (
        lambda: cramerl.mean(Support.uniform(0, 1e39, 5), jnp.ones(5)),
        "support must have atoms that differ in float32",
    ),
    "project: nothing": (lambda: cramerl.project(S, [], []), "one at least"),
    "affine: text": (
        lambda: cramerl.project_affine(S, GOOD, [["1", "2", "3"]], [1.0]),
        "matrix must hold real numbers",
    ),
    "affine: contradiction in float32": (
        lambda: cramerl.project_affine(S, GOOD.astype(np.float32), np.ones((2, 3)), [1.0, 2.0]),
        "contradict each other",
    ),
    "affine: contradiction beside a large row": (
        lambda: cramerl.project_affine(S, GOOD, [[1, 1, 1], [1, 1, 1], [1e9, 0, 0]], [1, 1.5, 2e8]),
        "contradict each other",
    ),
    "project: lengths": (lambda: cramerl.project(S, [0.0, 1.0], GOOD), r"atoms and masses .* \(2,\) and \(3,\)"),
    "project: leading": (
        lambda: cramerl.project(S, np.zeros((2, 3)), np.ones((4, 3))),
        r"leading axes must broadcast together, got \(2,\) of atoms, \(4,\) of masses",
    ),
    "project: infinite atom": (lambda: cramerl.project(S, INF, GOOD), "atoms must be finite, got inf"),
    "project: nan mass": (lambda: cramerl.project(S, GOOD, NAN), "masses must be finite, got nan"),
    "project: number": (lambda: cramerl.project(S, 1.0, 1.0), "last axes of equal length"),
    "backup: discount above": (lambda: cramerl.backup(S, 0.0, 1.5, GOOD), r"discounts must lie in \[0, 1\], got 1.5"),
    "backup: discount below": (
        lambda: cramerl.backup(S, np.zeros(2), [0.5, -0.1], np.ones((2, 3))),
        r"discounts must lie in \[0, 1\], got -0.1",
    ),
    "backup: discount nan": (lambda: cramerl.backup(S, 0.0, np.nan, GOOD), r"discounts must lie in \[0, 1\], got nan"),
    "backup: reward": (lambda: cramerl.backup(S, np.inf, 0.5, GOOD), "rewards must be finite, got inf"),
    "backup: masses": (lambda: cramerl.backup(S, 0.0, 0.5, WIDE), "masses " + LAST_AXIS),
    "backup: leading": (
        lambda: cramerl.backup(S, np.zeros(2), 0.5, np.ones((5, 3))),
        r"got \(2,\) of rewards, \(\) of discounts",
    ),
    "backup_matrix: discount": (lambda: cramerl.backup_matrix(S, 0.0, 2.0), r"discount must lie in \[0, 1\], got 2.0"),
    "backup_matrix: reward": (lambda: cramerl.backup_matrix(S, np.nan, 0.5), "reward must be finite, got nan"),
    "distance: p": (lambda: cramerl.cramer_distance_sq(S, WIDE, GOOD), "p " + LAST_AXIS),
    "distance: q": (lambda: cramerl.cramer_distance_sq(S, GOOD, NAN), "q must be finite, got nan"),
    "raw: form": (
        lambda: cramerl.raw_distance_sq(S, GOOD, GOOD, "left"),  # pyright: ignore[reportArgumentType]
        "form must be one of 'cumulative', 'tail', got 'left'",
    ),
    "raw_gram: form": (
        lambda: cramerl.raw_gram(S, "up"),  # pyright: ignore[reportArgumentType]
        "form must be one of",
    ),
    "affine: matrix": (
        lambda: cramerl.project_affine(S, GOOD, np.ones((1, 4)), [1.0]),
        r"matrix must have shape \(M, 3\)",
    ),
    "affine: matrix nan": (lambda: cramerl.project_affine(S, GOOD, [NAN], [1.0]), "matrix must be finite, got nan"),
    "affine: offset": (
        lambda: cramerl.project_affine(S, GOOD, [GOOD], [1.0, 2.0]),
        r"offset must have a last axis of 1",
    ),
    "affine: traced": (
        lambda: jax.jit(lambda a: cramerl.project_affine(S, GOOD, a, [1.0]))(GOOD[None]),
        "matrix must be a concrete array",
    ),
    "basis: outputs": (lambda: cramerl.unit_mass_basis(S).masses(GOOD), "outputs must have a last axis of 2"),
    "affine: masses": (lambda: cramerl.project_affine(S, WIDE, [GOOD], [1.0]), "masses " + LAST_AXIS),
    "loss: target": (lambda: cramerl.cramer_loss(S, WIDE, GOOD, 1.0), "target " + LAST_AXIS),
    "loss: prediction": (lambda: cramerl.cramer_loss(S, GOOD, NAN, 1.0), "prediction must be finite, got nan"),
    "loss: scale": (
        lambda: cramerl.cramer_loss(S, GOOD, GOOD, 1.0, "half"),  # pyright: ignore[reportArgumentType]
        "mass_penalty_scale must be one of 'orthonormal', 'total', got 'half'",
    ),
    "loss: mean weight": (
        lambda: cramerl.cramer_loss(S, GOOD, GOOD, 1.0, mean_weight=-1),
        "mean_weight must be a finite number >= 0, got -1",
    ),
    "entropy: shapes": (lambda: cramerl.categorical_cross_entropy(GOOD, WIDE), "target and logits must have last axes"),
    "cdf_cross_entropy: sizes": (
        lambda: cramerl.cdf_cross_entropy([0.5, 0.5], [0.0, 1.0]),
        r"target must have a last axis of 3 \(the logits and one more\), got shape \(2,\)",
    ),
    "cdf_cross_entropy: number": (
        lambda: cramerl.cdf_cross_entropy([0.5, 0.5], 0.0),
        r"logits must have a last axis of at least one, got shape \(\)",
    ),
    "masses_of_cdf_logits: number": (
        lambda: cramerl.masses_of_cdf_logits(0.0),
        r"logits must have a last axis of at least one, got shape \(\)",
    ),
    "rearranged_distribution: uneven": (
        lambda: cramerl.rearranged_distribution(cramerl.Support([0, 1, 3]), [0.5, 0.25, 0.25]),
        "support must have evenly spaced atoms, got spacings 1.0 to 2.0",
    ),
    "quantile_huber: levels": (
        lambda: cramerl.quantile_huber(GOOD, GOOD, [0.5]),
        r"levels must have shape \(3,\), one for each quantile, got \(1,\)",
    ),
    "quantile_huber: level": (
        lambda: cramerl.quantile_huber(GOOD, GOOD, [0.5, 1.5, 0]),
        r"levels must lie in \[0, 1\]",
    ),
    "quantile_huber: number": (
        lambda: cramerl.quantile_huber(1.0, GOOD),
        "target must have a last axis of at least one",
    ),
    "quantile_huber: threshold": (
        lambda: cramerl.quantile_huber(GOOD, GOOD, threshold=-1),
        "threshold must be a finite number >= 0, got -1",
    ),
    "hl_gauss: sigma": (lambda: cramerl.hl_gauss_targets(S, 0.0, 0.0), "sigma must be a finite number > 0, got 0.0"),
    "hl_gauss: values": (lambda: cramerl.hl_gauss_targets(S, np.nan, 1.0), "values must be finite, got nan"),
    "td_huber: threshold": (lambda: cramerl.td_huber(1.0, 2.0, 0), "threshold must be a finite number > 0, got 0"),
    "td_squared: shapes": (lambda: cramerl.td_squared(GOOD, WIDE), "leading axes must broadcast"),
    "quantile: level": (lambda: cramerl.quantile(S, GOOD, 1.1), r"level must lie in \[0, 1\], got 1.1"),
    "cvar: level": (lambda: cramerl.cvar(S, GOOD, -0.5), r"level must lie in \[0, 1\], got -0.5"),
    "cvar: leading": (lambda: cramerl.cvar(S, np.ones((2, 3)), [0.1, 0.2, 0.3]), "leading axes must broadcast"),
}


@pytest.mark.parametrize("call", CALLS)
def test_calls(call):
    function, sentence = CALLS[call]
    with pytest.raises(ValueError, match=sentence):
        function()


@pytest.mark.parametrize("penalty", [-1.0, np.nan, np.inf, "1", None, True, [1.0], np.ones(3)])
def test_penalties(penalty):
    sentence = "mass_penalty must be a finite number >= 0, got"
    for call in (
        lambda: cramerl.cramer_gram(S, penalty),
        lambda: cramerl.cramer_gram_sqrt(S, penalty),
        lambda: cramerl.condition_number(S, penalty),
        lambda: cramerl.cramer_distance_sq(S, GOOD, GOOD, mass_penalty=penalty),
        lambda: cramerl.cramer_loss(S, GOOD, GOOD, penalty),
    ):
        with pytest.raises(ValueError, match=sentence):
            call()


def test_a_zero_penalty_has_no_inverse():
    for call in (lambda: cramerl.cramer_gram_inverse(S, 0), lambda: cramerl.project_affine(S, GOOD, [GOOD], [1.0], 0)):
        with pytest.raises(ValueError, match="mass_penalty must be a finite number > 0, got 0"):
            call()


def test_inputs_are_left_as_they_were():
    masses, atoms = GOOD.copy(), np.array([3.0, -2.0, 0.1])
    cramerl.project(S, atoms, masses)
    cramerl.nearest_distribution(S, masses)
    cramerl.quantile(S, masses, 0.5)
    np.testing.assert_array_equal(masses, GOOD)
    np.testing.assert_array_equal(atoms, [3.0, -2.0, 0.1])


OF_SUPPORTS = {
    **dict.fromkeys(MASS_FUNCTIONS, (GOOD,)),
    **dict.fromkeys(("optimal_penalty_range", "raw_gram", "unit_mass_basis"), ()),
    **{f"cramer_gram{kind}": (1.0,) for kind in ("", "_inverse", "_sqrt")},
    "condition_number": (1.0,),
    "with_unit_mass": (GOOD,),
    "quantile": (GOOD, 0.5),
    "cvar": (GOOD, 0.5),
    "clipped_mass": (0.0, 0.9, GOOD),
    "cramer_distance_sq": (GOOD, GOOD),
    "raw_distance_sq": (GOOD, GOOD),
    "project": (GOOD, GOOD),
    "backup": (0.0, 0.9, GOOD),
    "backup_matrix": (0.0, 0.9),
    "project_affine": (GOOD, [GOOD], [1.0]),
    "cramer_loss": (GOOD, GOOD, 1.0),
    "hl_gauss_targets": (0.0, 0.5),
}


def test_every_function_of_supports_is_listed():
    found = [name for name in cramerl.__all__ if "support" in getattr(getattr(cramerl, name), "__annotations__", {})]
    assert set(OF_SUPPORTS) == {name for name in found if name not in ("evaluate", "TrainConfig", "Support")}


@pytest.mark.parametrize("name", OF_SUPPORTS)
@pytest.mark.parametrize(
    "support", [None, 3, "abc", [0.0, 1.0, 2.0], GOOD, object()], ids=lambda value: type(value).__name__
)
def test_a_support_that_is_none(name, support):
    with pytest.raises(ValueError, match=r"^support must be a Support, got "):
        getattr(cramerl, name)(support, *OF_SUPPORTS[name])


@pytest.mark.parametrize("name", [name for name, rest in OF_SUPPORTS.items() if rest])
@pytest.mark.parametrize("number", [10**400, -(10**400)], ids=["large", "small"])
def test_integers_beyond_a_float(name, number):
    *first, _ = OF_SUPPORTS[name]
    with pytest.raises(ValueError, match=r"must "):
        getattr(cramerl, name)(S, *first, number)


def test_masked_arrays_are_refused():
    masked = np.ma.masked_array(GOOD, [True, False, False])
    for call in (lambda: cramerl.mean(S, masked), lambda: cramerl.cramer_distance_sq(S, masked, masked)):
        with pytest.raises(ValueError, match=r"^\w+ must be an array without a mask"):
            call()


@pytest.mark.parametrize("sigma", [1e-200, 1e-20, 1e16])
def test_widths_at_which_only_rounding_is_left(sigma):
    for values in (np.zeros(2), np.zeros(2, np.float32)):
        with pytest.raises(ValueError, match=r"^sigma must lie in \[1e-06, 3000\] on this support, got "):
            cramerl.hl_gauss_targets(S, values, sigma)


def test_quantiles_of_masses_whose_total_overflows():
    for function in (cramerl.quantile, cramerl.cvar):
        with pytest.raises(ValueError, match=r"^masses must have a finite total mass"), np.errstate(over="ignore"):
            function(S, np.full(3, 1e308), 0.5)


def test_a_ragged_list_is_no_penalty():
    with pytest.raises(ValueError, match=r"^mass_penalty must be a finite number > 0, got \[\[1.0\], "):
        cramerl.cramer_gram_inverse(S, [[1.0], [1.0, 2.0]])
