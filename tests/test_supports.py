import copy
import pickle

import jax
import numpy as np
import pytest

from cramerl import Support


def test_uniform_is_a_linspace():
    support = Support.uniform(-10, 10, 51)
    np.testing.assert_array_equal(support.atoms, np.linspace(-10, 10, 51))
    assert (support.num_atoms, support.v_min, support.v_max) == (51, -10.0, 10.0)
    assert support.is_uniform
    np.testing.assert_allclose(support.spacings, 0.4, rtol=1e-14)


@pytest.mark.parametrize(
    ("atoms", "uniform"),
    [
        ([0, 1], True),
        ([0, 1, 2.5], False),
        (np.arange(101) * 0.1, True),
        (1e9 + np.array([0.0, 1.0, 2.0]), True),
        (1e9 + np.array([0.0, 1e-3, 2.1e-3]), False),
        (np.array([0, 1, 2 + 1e-9]), False),
    ],
)
def test_is_uniform(atoms, uniform):
    assert Support(atoms).is_uniform is uniform


def test_equal_supports_hash_alike():
    a, b = Support([-1, -0.0, 1]), Support(np.array([-1.0, 0.0, 1.0]))
    assert a == b
    assert hash(a) == hash(b)
    assert a != Support([-1, 0, 2])
    assert a != "support"


def test_survives_copy_and_pickle():
    support = Support([0.0, 0.1, 5.0])
    for other in (copy.deepcopy(support), pickle.loads(pickle.dumps(support)), eval(repr(support))):
        assert other == support
        assert not other.atoms.flags.writeable


def test_cannot_be_changed():
    support, given = Support.uniform(0, 1, 3), np.array([0.0, 1.0, 2.0])
    with pytest.raises(ValueError, match="read-only"):
        support.atoms[0] = 5
    with pytest.raises(AttributeError):
        support.atoms = given  # pyright: ignore[reportAttributeAccessIssue]
    other = Support(given)
    given[0] = -9  # the caller's array stays the caller's
    assert other.v_min == 0


def test_static_argument_compiles_once_per_support():
    traces = []

    def total(support, x):
        traces.append(support)
        return x * support.v_max

    jitted = jax.jit(total, static_argnums=0)
    jitted(Support.uniform(0, 1, 3), 1.0)
    jitted(Support.uniform(0, 1, 3), 2.0)
    assert len(traces) == 1
    jitted(Support.uniform(0, 2, 3), 2.0)
    assert len(traces) == 2


@pytest.mark.parametrize(
    ("atoms", "sentence"),
    [
        ([1.0], r"at least 2 values, got shape \(1,\)"),
        ([[0.0, 1.0]], r"one-dimensional .* got shape \(1, 2\)"),
        ([0.0, 2.0, 1.0], "strictly increasing, got 2.0 followed by 1.0"),
        ([0.0, 0.0], "strictly increasing, got 0.0 followed by 0.0"),
        ([0.0, np.nan], "finite, got nan"),
        ([-np.inf, 0.0], "finite, got -inf"),
        ([-1.7e308, 1.7e308], "finite width"),
        (["1", "2"], "atoms must hold real numbers"),
        ([1j, 2j], "atoms must hold real numbers"),
        ([False, True], "atoms must hold real numbers"),
        ([[1], [1, 2]], "atoms must be an array of real numbers"),
        ([-1.5e308, 0.0, 1.5e308], "finite width"),
        (None, r"atoms must be"),
    ],
)
def test_bad_atoms(atoms, sentence):
    with pytest.raises(ValueError, match=sentence):
        Support(atoms)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((0, 1, 1), "num_atoms must be an integer >= 2, got 1"),
        ((0, 1, 3.0), "num_atoms must be an integer >= 2, got 3.0"),
        ((0, 1, True), "num_atoms must be an integer >= 2, got True"),
        ((1, 1, 5), "v_min must be less than v_max, got v_min=1.0 and v_max=1.0"),
        ((0, np.inf, 5), "v_max must be a finite number, got inf"),
        ((None, 1, 5), "v_min must be a finite number, got None"),
        ((-1.7e308, 1.7e308, 5), "v_max - v_min must be finite"),
        ((0, 10**400, 5), "v_max must be a finite number"),
        ((1.0, np.nextafter(1.0, 2), 5), "strictly increasing"),
    ],
)
def test_bad_uniform(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        Support.uniform(*arguments)
