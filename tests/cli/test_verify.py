"""`cramerl verify`: the table of claims, its files and its exit status."""

import json
from pathlib import Path

import pytest
from commands import refused, run, run_process

from cramerl import claims
from cramerl.claims import distance


def test_verify_reproduces_the_errata(tmp_path):
    files = [part for kind in ("json", "html", "markdown") for part in (f"--{kind}", tmp_path / f"claims.{kind}")]
    result = run_process("verify", *files)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.startswith("32 claims of the paper")
    *_, one, page = result.stdout.splitlines()
    assert one == "one claim in full:   cramerl verify 8b"
    assert page == f"to read the page:    open {tmp_path / 'claims.html'}"
    assert "10e" in (tmp_path / "claims.json").read_text()
    assert (tmp_path / "claims.html").read_text().lower().startswith("<!doctype html>")
    assert "## Claim 10e" in (tmp_path / "claims.markdown").read_text()
    assert len(json.loads((tmp_path / "claims.json").read_text())["claims"]) == 42


def test_verify_fails_when_a_figure_moves(monkeypatch):
    """A Gram matrix off by one part in a thousand has to be noticed."""
    true, statements = distance.cramer_gram, distance.STATEMENTS
    monkeypatch.setattr(distance, "cramer_gram", lambda support, penalty: 1.001 * true(support, penalty))
    monkeypatch.setattr(claims, "verify", lambda ids, on_progress: [statement.check() for statement in statements])
    result = run("verify", "--json")
    assert result.returncode == 1, result.stderr
    assert len(json.loads(result.stdout)["claims"]) == len(statements)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--json", "a", "--html", "./a"], "--json, --html and --markdown must be different files, got a"),
        (["99"], "cramerl: a claim must be one of 1a, 1b, 1c, 1d, 2,"),
        (["9f", "1"], "B10; got '1'"),
        (["--json", "/proc/claims.json"], "in a folder that can be written to, got /proc/claims.json"),
    ],
)
def test_bad_input(arguments, sentence, tmp_path):
    assert sentence in refused("verify", *arguments, cwd=tmp_path)
    assert not list(tmp_path.iterdir())


def test_one_claim_says_what_is_true_instead():
    result = run("verify", "9F")
    assert result.returncode == 0
    assert result.stdout.startswith("Claim 9f: ✗ false as printed (theorem: ")
    assert "Needs the constant in the span of the features" in result.stdout
    assert "3-cycle: largest excess: 0.4444444444 (expected 0.4444444444)" in result.stdout
    assert "all claims:          cramerl verify\n" in result.stdout
    assert [claim["id"] for claim in json.loads(run("verify", "9f", "9i", "--json").stdout)["claims"]] == ["9f", "9i"]


def test_lines_are_as_wide_as_the_terminal(monkeypatch):
    for width in (50, 90):
        monkeypatch.setenv("COLUMNS", str(width))
        lines = run("verify", "9g", "9i").stdout.splitlines()
        assert width - 15 < max(map(len, lines[:-3])) <= width


def test_a_page_of_others_is_kept(tmp_path):
    page = tmp_path / "claims.html"
    page.write_text("mine")
    assert "choose another, or add --overwrite" in refused("verify", "9i", "--html", page)
    assert page.read_text() == "mine"
    assert f"replaced {page}\n" in run("verify", "9i", "--html", page, "--overwrite").stdout
    assert f"replaced {page}\n" in run("verify", "9i", "--html", page).stdout  # its own, and it says so


def test_the_page_of_the_documentation_is_this_commands(tmp_path):
    copy = tmp_path / "claims.md"
    copy.write_bytes((Path(__file__).parents[2] / "docs" / "claims.md").read_bytes())
    assert f"replaced {copy}\n" in run("verify", "9i", "--markdown", copy).stdout


def test_it_says_at_once_what_it_does(monkeypatch):
    said = []
    monkeypatch.setattr("cramerl.cli.verify.show_progress", said.append)
    assert run("verify", "9i").returncode == 0
    assert said == ["recomputing the claims ...", "recomputing claim 9i (1 of 1) ...", ""]


def test_a_claim_is_not_taken_for_a_file(tmp_path):
    result = run("verify", "--html", "9f", cwd=tmp_path)
    assert result.returncode == 2
    assert "--html must be followed by a file, got 9f: write claims first" in result.stderr
    assert not list(tmp_path.iterdir())
