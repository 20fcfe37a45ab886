"""`cramerl verify`: the table of claims, its files and its exit status."""

import json

import pytest
from commands import refused, run, run_process

from cramerl import claims
from cramerl.claims import distance


def test_verify_reproduces_the_errata(tmp_path):
    files = [part for kind in ("json", "html", "markdown") for part in (f"--{kind}", tmp_path / f"claims.{kind}")]
    result = run_process("verify", *files)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "32 claims of the paper" in result.stdout
    assert "10e" in (tmp_path / "claims.json").read_text()
    assert (tmp_path / "claims.html").read_text().lower().startswith("<!doctype html>")
    assert "## Claim 10e" in (tmp_path / "claims.markdown").read_text()
    assert len(json.loads((tmp_path / "claims.json").read_text())["claims"]) == 42


def test_verify_fails_when_a_figure_moves(monkeypatch):
    """A Gram matrix off by one part in a thousand has to be noticed."""
    true, statements = distance.cramer_gram, distance.STATEMENTS
    monkeypatch.setattr(distance, "cramer_gram", lambda support, penalty: 1.001 * true(support, penalty))
    monkeypatch.setattr(claims, "verify", lambda: [statement.check() for statement in statements])
    result = run("verify", "--json")
    assert result.returncode == 1, result.stderr
    assert len(json.loads(result.stdout)["claims"]) == len(statements)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--json", "a", "--html", "./a"], "--json, --html and --markdown must be different files, got a"),
        (["--json", "/proc/claims.json"], "in a folder that can be written to, got /proc/claims.json"),
    ],
)
def test_bad_input(arguments, sentence, tmp_path):
    assert sentence in refused("verify", *arguments, cwd=tmp_path)
    assert not list(tmp_path.iterdir())
