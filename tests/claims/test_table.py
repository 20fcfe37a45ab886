"""Claims for a terminal and as JSON: what comes first, what is said of each, and which claims can be asked for."""

import json
from dataclasses import replace

import pytest

from cramerl.claims import format_claim, format_table, to_json, verify
from cramerl.claims.claim import SEVERITIES, Statement
from cramerl.claims.table import by_importance

SEVERITY = {
    **dict.fromkeys(("1a", "1c", "1d", "10c"), "misprint"),
    **dict.fromkeys(("2", "2b", "3b", "6", "6b", "7", "9g", "10a", "10b", "10d", "10e"), "constant"),
    **dict.fromkeys(("8b", "8c", "9b", "9d", "9e", "9f", "9h", "11", "12"), "theorem"),
}
FALSE, CORRECTED, HOLDS = "false", "holds with a correction", "holds"


def with_moved_figure(claim):
    name = next(iter(claim.figures))
    return replace(claim, figures=claim.figures | {name: 1e6}, passed=False)


def words(text):
    return " ".join(text.split())


def test_every_claim_that_does_not_hold_has_a_severity(claims):
    assert {claim.id: claim.severity for claim in claims if claim.verdict != HOLDS} == SEVERITY
    assert {claim.severity for claim in claims if claim.verdict == HOLDS} == {None}


@pytest.mark.parametrize(("verdict", "severity"), [(HOLDS, "misprint"), (FALSE, None), (CORRECTED, None)])
def test_a_severity_is_declared_where_it_belongs(verdict, severity):
    with pytest.raises(ValueError, match="claim 0 must have a severity if and only if it does not hold"):
        Statement("0", "", verdict, "", dict, severity=severity)


def test_the_most_important_come_first(claims):
    verdicts, severities = (FALSE, CORRECTED, HOLDS), (*SEVERITIES, None)
    keys = [(verdicts.index(one.verdict), severities.index(one.severity)) for one in by_importance(claims)]
    assert keys == sorted(keys)
    first = [claim.id for claim in by_importance(claims)][:10]
    assert first == ["8b", "8c", "9b", "9d", "9e", "9f", "9h", "11", "12", "2"]


@pytest.mark.parametrize("width", [30, 40, 71, 110, 200])
def test_a_summary_then_each_claim(claims, width):
    table = format_table(claims, width)
    lines = table.splitlines()
    assert max(map(len, lines)) <= width
    assert words(table).startswith(
        "32 claims of the paper: ✓ 8 hold, ~ 9 hold with a correction, ✗ 15 are false as printed (9 theorems or "
        "arguments, 4 constants, 2 misprints). 10 claims beyond the paper: ✓ all hold. All 165 figures are reproduced. "
        "The paper's main points stand"
    )
    starts = [line[:5].strip() for line in lines if line[5:6] in ("✓", "~", "✗")]
    order = by_importance(claims)
    assert starts == [claim.id for of_paper in (True, False) for claim in order if claim.of_paper == of_paper]


def test_a_wide_terminal_has_one_line_for_each_claim(claims):
    lines = format_table(claims, 200).splitlines()
    for claim in claims:
        (line,) = (line for line in lines if line.startswith(f"{claim.id} "))
        assert line.endswith(claim.statement)
        assert (claim.severity or "") in line


def test_what_has_moved_is_named(claims):
    table = format_table([with_moved_figure(claims[0]), *claims[1:]], 120)
    assert "FIGURES HAVE MOVED in 1a." in words(table)
    assert "MOVED, expected 11" in table
    assert "MOVED" not in format_table(claims, 120)


@pytest.mark.parametrize("width", [60, 80])
def test_one_claim_in_full(claims, width):
    for claim in claims:
        text = format_claim(claim, width)
        assert max(map(len, text.splitlines())) <= width
        for part in (claim.statement, claim.correction, *claim.figures):
            assert words(part) in words(text)
        for expected in claim.expected.values():
            assert f"expected {expected.text}" in words(text)
        assert ("This library says" in text) == (not claim.of_paper)
    assert "misprint: a sign, an exponent" in words(format_claim(claims[0], width))


def test_the_tone_is_that_of_a_colleague(claims):
    for claim in claims:
        assert "wrong" not in (claim.statement + claim.correction).lower()
        assert "!" not in claim.statement + claim.correction


def test_claims_can_be_asked_for_by_their_names():
    messages = []
    found = verify(["9I", "b6"], on_progress=messages.append)
    assert [claim.id for claim in found] == ["9i", "B6"]
    assert messages == ["recomputing claim 9i (1 of 2) ...", "recomputing claim B6 (2 of 2) ..."]
    with pytest.raises(ValueError, match=r"^a claim must be one of 1a, 1b, .*, B10; got '99'$"):
        verify(["9i", "99"])


def test_json(claims):
    record = json.loads(json.dumps(to_json(claims), allow_nan=False))
    assert record["passed"] is True
    assert record["counts"] == {HOLDS: 8, CORRECTED: 9, FALSE: 15}
    assert record["counts_beyond_paper"] == {HOLDS: 10, CORRECTED: 0, FALSE: 0}
    assert [claim["of_paper"] for claim in record["claims"]] == [claim.of_paper for claim in claims]
    assert [claim["id"] for claim in record["claims"]] == [claim.id for claim in claims]
    assert [claim["severity"] for claim in record["claims"]] == [claim.severity for claim in claims]
    (lemma,) = (claim for claim in record["claims"] if claim["id"] == "3")
    assert lemma["figures"]["cond(CC')"] == pytest.approx(4296.0000281)
    assert lemma["expected"]["cond(CC')"]["text"] == "4296.0000281"
    assert to_json([with_moved_figure(claims[0])])["passed"] is False
