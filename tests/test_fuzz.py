"""A short version of `make fuzz`, whose trials follow from a seed: none of them may be bad."""

from __future__ import annotations

import fuzz
import pytest

import cramerl.cramer
import cramerl.linear.evaluation

pytestmark = pytest.mark.filterwarnings("default")  # as for a user

SHORT = {"commands": 40, "calls": 400, "pages": 1, "folders": 5, "evaluations": 25}
LONG = {"calls": 3000, "folders": 100, "kills": 4, "stops": 8, "evaluations": 200}


def none(**numbers: int) -> list[str]:
    """The command line for these trials alone."""
    return ["--seed", "1", *(word for kind in fuzz.KINDS for word in (f"--{kind}", str(numbers.get(kind, 0))))]


@pytest.mark.parametrize(
    ("kind", "trials"),
    [*SHORT.items(), *(pytest.param(*one, marks=pytest.mark.slow) for one in LONG.items())],
)
def test_no_trial_is_bad(kind, trials, capsys):
    status = fuzz.main(none(**{kind: trials}))
    said = capsys.readouterr().out
    assert status == 0, said
    assert said.splitlines()[-1].replace(",", "").split()[:4] == [kind, str(trials), str(trials), "0"]


def test_trials_in_several_processes_are_the_same(capsys):
    assert fuzz.main([*none(calls=60), "--jobs", "2"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[:4] == ["calls", "60", "60", "0"]


def test_a_wrong_fixed_point_is_found(capsys, monkeypatch):
    """A guard is taken out: the estimate of a solution's error, and the answer is one that has not converged."""
    solve = cramerl.linear.evaluation.solve

    def careless(system, method, *rest):
        return solve(system, method, *rest)._replace(weights=1.001 * system.constant, error=0.0, residual=0.0)

    monkeypatch.setattr(cramerl.linear.evaluation, "solve", careless)
    assert fuzz.main(none(evaluations=10)) == 1
    assert "masses are wrong by" in capsys.readouterr().out


def test_a_bad_trial_is_reported_and_can_be_repeated(capsys, monkeypatch):
    """A guard is taken out: the check of a mass penalty."""
    with monkeypatch.context() as patch:
        patch.setattr(cramerl.cramer, "require_penalty", lambda value, **options: value)
        assert fuzz.main(none(calls=300)) == 1
        bad = [line.strip() for line in capsys.readouterr().out.splitlines() if line.startswith("  calls:")]
        name = ":".join(bad[0].split(":")[:2])
        assert fuzz.main(["--seed", "1", "--only", name]) == 1
        assert bad[0] in capsys.readouterr().out
    assert fuzz.main(["--seed", "1", "--only", name]) == 0
