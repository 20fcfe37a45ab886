"""The measures of the paper's phenomena on distributions made by hand."""

from dataclasses import replace

import numpy as np
import pytest
from watch_recordings import make_recording

from cramerl import Support, cramer_distance_sq
from cramerl.watching import phenomena

ATOMS = np.arange(-5.0, 6.0)


def distribution(**masses: float) -> np.ndarray:
    """Masses by return: ``distribution(m2=-0.1, p0=1)`` is -0.1 at -2 and 1 at 0."""
    found = np.zeros(11)
    for name, mass in masses.items():
        found[5 + (-1 if name[0] == "m" else 1) * int(name[1:])] = mass
    return found


def test_double_negative_is_negative_mass_on_negative_returns():
    assert phenomena.double_negative(ATOMS, distribution(m3=-0.2, m1=-0.1, p2=1.3)) == pytest.approx(0.3)
    assert phenomena.double_negative(ATOMS, distribution(p1=-0.3, p2=1.3)) == 0  # on a positive return
    assert phenomena.double_negative(ATOMS, distribution(m3=0.5, p2=0.5)) == 0  # positive mass
    assert phenomena.double_negative(ATOMS, distribution(m3=-0.3, p2=0.8)) == pytest.approx(
        0.15
    )  # total 0.5: counts half
    assert phenomena.double_negative(ATOMS, distribution(m3=-0.3)) == 0  # total far from one


def test_compensation_is_what_cancels_beside_zero_times_the_mass_at_zero():
    assert phenomena.compensation(ATOMS, distribution(m1=-0.1, p0=0.8, p1=0.2)) == pytest.approx(0.1 * 0.8)
    assert phenomena.compensation(ATOMS, distribution(m1=0.1, p0=0.8, p1=0.1)) == 0  # nothing cancels
    assert phenomena.compensation(ATOMS, distribution(m1=-0.1, p1=1.1)) == 0  # nothing at 0
    wide = np.arange(-10.0, 11.0)
    far = np.zeros(21)
    far[[0, 10, 20]] = -0.1, 0.8, 0.3
    assert phenomena.compensation(wide, far) == 0  # not beside 0
    assert phenomena.compensation(ATOMS + 20, distribution(m1=-0.1, p0=0.8, p1=0.2)) == 0  # 0 is not on the support


def test_noise_is_roughness_on_half_of_the_atoms():
    rough = np.array([0.2, 0, 0.2, 0, 0.2, 0, 0.2, 0, 0.2, 0, 0])
    assert phenomena.noise(ATOMS, rough) == pytest.approx(11 * 0.2)
    assert phenomena.noise(ATOMS, distribution(p0=1)) == 0
    assert phenomena.noise(ATOMS, np.full(11, 1 / 11)) == pytest.approx(0)
    bell = np.exp(-(ATOMS**2) / 8)
    assert phenomena.noise(ATOMS, bell / bell.sum()) < 0.15


def test_disagreement_is_the_cramer_distance():
    support = Support(ATOMS)
    one, other = distribution(m1=0.5, p2=0.5), distribution(p0=0.7, p3=0.3)
    assert phenomena.cramer_distance((ATOMS, one), (ATOMS, other)) ** 2 == pytest.approx(
        float(cramer_distance_sq(support, one, other, mass_penalty=0.0))
    )
    # Points at 0 and 2: the distance of the CDFs is one on an interval of length two.
    assert phenomena.cramer_distance((np.array([0.0]), np.ones(1)), (ATOMS, distribution(p2=1))) == pytest.approx(
        2**0.5
    )
    assert phenomena.cramer_distance((ATOMS, one), (ATOMS, one)) == pytest.approx(0)


def test_distributions_get_unit_mass_before_they_disagree():
    recording = make_recording()
    first = recording.views[0]
    scaled = first._replace(distributions=first.distributions / 2)
    uniform = first.distributions / 2 + (1 - first.distributions.sum(axis=-1, keepdims=True) / 2) / 11
    same = replace(recording, views=[scaled, first._replace(distributions=uniform)])
    assert phenomena.scores(same)["disagreement"].max() < 1e-5
    assert phenomena.scores(replace(recording, views=[scaled, first]))["disagreement"].min() > 0.1


def test_disagreement_of_many_steps_at_once(rng):
    places, masses = np.sort(rng.normal(size=(7, 5)), axis=1), rng.normal(size=(7, 11))
    masses += (1 - masses.sum(axis=1, keepdims=True)) / 11
    each = [phenomena.cramer_distance((places[t], np.full(5, 0.2)), (ATOMS, masses[t])) for t in range(7)]
    together = phenomena.cramer_distance((places, np.full((7, 5), 0.2)), (np.broadcast_to(ATOMS, (7, 11)), masses))
    np.testing.assert_allclose(together, each)
    fine = np.linspace(-6, 6, 200_001)  # a slow twin: the area between the CDFs on a grid
    steps = (np.full(5, 0.2) @ (places[0][:, None] <= fine)) - (masses[0] @ (ATOMS[:, None] <= fine))
    assert together[0] ** 2 == pytest.approx(np.sum(steps[:-1] ** 2 * np.diff(fine)), rel=1e-3)


def test_the_strongest_steps_come_first_and_are_apart():
    score = np.zeros(1000)
    score[[100, 105, 500, 900]] = 1.0, 0.9, 3.0, 2.0
    assert phenomena.strongest_steps(score) == [500, 900, 100]
    assert phenomena.strongest_steps(score, 2) == [500, 900]
    assert phenomena.strongest_steps(np.zeros(50)) == []


def test_scores_of_a_recording():
    recording = make_recording()
    found = phenomena.scores(recording)
    assert set(found) == set(phenomena.PHENOMENA)
    assert phenomena.strongest_steps(found["double-negative"])[0] == 17
    assert all(score.shape == (40,) and np.isfinite(score).all() for score in found.values())
    alone = phenomena.scores(make_recording(views=("dqn",)))
    assert not any(score.any() for score in alone.values())
    assert phenomena.scores(make_recording(views=("s51", "qr", "dqn")))["disagreement"].min() > 0


def test_marks_are_where_the_phenomena_show():
    made = make_recording(60)
    (mark,) = phenomena.marks(made, "double-negative", 17)
    assert mark == (0, -8, -8)  # the first agent's, on the atom that was made negative
    (mark,) = phenomena.marks(made, "noise", 3)
    assert (mark.low, mark.high) == (-10, 10)
    (mark,) = phenomena.marks(made, "compensation", 3)
    assert (mark.low, mark.high) == (-10, 10)  # five atoms on each side of 0, of eleven


def test_disagreement_is_marked_where_the_distributions_differ():
    made = make_recording(30)
    wide = made.views[1].distributions * 0
    narrow = wide.copy()
    wide[..., [0, 6]], narrow[..., [0, 7]] = 0.5, 0.5
    views = [view._replace(distributions=one) for view, one in zip(made.views, (wide, narrow), strict=True)]
    first, second = phenomena.marks(replace(made, views=views), "disagreement", 4)
    assert (first.view, second.view) == (0, 1)
    assert (first.low, first.high) == (second.low, second.high) == (2, 4)


def test_every_phenomenon_has_a_meaning():
    assert tuple(phenomena.MEANINGS) == phenomena.PHENOMENA
