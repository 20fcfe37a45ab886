"""The page of an evaluation from a log: its numbers are the evaluation's, it is one file, and nothing is unescaped."""

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from log_pages import COMMAND, HOSTILE, numbers, small_log, values, words
from small_worlds import LOGGED, TARGET, WORLD

from cramerl.evaluations import write_page
from cramerl.evaluations.numerals import decimals_of
from cramerl.evaluations.trust_rows import UNKNOWN, trust_rows
from cramerl.linear import Log, Trust, evaluate_policy
from cramerl.linear.evaluation_file import MADE_BY
from cramerl.linear.logs import thresholds
from cramerl.linear.logs.comparators import monte_carlo
from cramerl.linear.logs.policy_evaluation import PolicyEvaluations
from cramerl.linear.logs.trust import UNKNOWABLE, findings


def made(found, folder: Path) -> str:
    return write_page(found, folder, COMMAND).read_text(encoding="utf-8")


def assert_shown(text: str, estimate) -> None:
    """The three numbers of a text are an estimate, rounded to two digits of half its interval."""
    half = 0.5 * 10.0 ** -decimals_of(estimate)
    assert half <= 0.05 * (estimate.high - estimate.low)
    np.testing.assert_allclose(numbers(text), estimate[:3], rtol=0, atol=half * (1 + 1e-9))


def test_the_page_is_one_file_without_network(pages):
    for path in pages.values():
        page, ids = path.read_text(encoding="utf-8"), []

        class Reader(HTMLParser):
            def handle_starttag(self, tag, attrs, ids=ids):
                found = dict(attrs)
                ids.extend([found["id"]] if "id" in found else [])
                assert tag not in ("img", "iframe", "object", "b-old")
                assert "src" not in found
                assert found.get("href", "#").startswith(("#", "data:,"))
                assert not any(name.startswith("on") for name in found)

        Reader().feed(page)
        assert path.name == "evaluation.html"
        assert len(ids) == len(set(ids))
        assert set(re.findall(r'href="#([^"]+)', page)) <= set(ids)
        assert "default-src 'none'" in page
        assert "prefers-color-scheme: dark" in page
        assert f'content="{MADE_BY} ' in page[:4000]
        assert str(path.parent) not in page


def test_the_headline_holds_the_answer(own, pages):
    page = pages["own"].read_text(encoding="utf-8")
    answers = re.findall(r"<p><b>(.*?)</b> <span>(.*?)</span> <span class=\"interval\">95% interval (.*?)</span>", page)
    assert [said for _, said, _ in answers] == ["on average", "on average in the worst 10% of cases"]
    for (value, _, interval), estimate in zip(answers, (own.mean, own.cvar(0.1)), strict=True):
        assert_shown(f"{value} {interval}", estimate)
    text = words(page)
    assert "Returns of the policy that made the log" in text
    assert "discounted by 0.9 for each step. Starts are the first states of episodes." in text


def test_an_answer_that_is_not_to_be_used_comes_after_the_verdict(own, few, pages):
    page = pages["few"].read_text(encoding="utf-8")
    assert few.trust.verdict == "do not use"
    assert page.index('class="verdict stop"') < page.index('class="answers subdued"')
    said = words(page[page.index('class="verdict stop"') :])
    reasons = [said.index(reason) for reason in few.trust.reasons[:-1]]
    assert len(reasons) >= 2
    assert reasons == sorted(reasons)
    other = pages["own"].read_text(encoding="utf-8")
    assert own.trust.verdict == "use"
    assert other.index('class="answers"') < other.index('class="verdict good"')
    assert "Nothing that was checked speaks against this answer." in other
    assert UNKNOWABLE in words(page)
    assert UNKNOWABLE in words(other)


def test_the_table_holds_what_is_read_off_the_distribution(own, pages):
    page = pages["own"].read_text(encoding="utf-8")
    rows = re.findall(r"</i>([^<]*)</td><td>([^<]*)</td><td>([^<]*)</td>", page)
    expected = {
        "mean": own.mean,
        "mean of the worst 10%": own.cvar(0.1),
        "mean of the worst 25%": own.cvar(0.25),
        "5% quantile": own.quantile(0.05),
        "median": own.quantile(0.5),
        "95% quantile": own.quantile(0.95),
    }
    assert [name for name, _, _ in rows] == list(expected)
    for (_, value, interval), estimate in zip(rows, expected.values(), strict=True):
        if estimate.high > estimate.low:
            assert_shown(f"{value} {interval}", estimate)


def test_the_charts_hold_the_cdf_and_the_masses(own, pages):
    masses, cdf, _ = values(pages["own"].read_text(encoding="utf-8"))
    atoms = own.distribution.support.atoms
    (line,) = cdf["lines"]
    for (said, across), (x, y, shown) in zip(cdf["stops"], line["points"], strict=True):
        atom = atoms[np.abs(atoms - numbers(said)[0]).argmin()]
        estimate = own.cdf(float(atom))
        assert across == x
        assert 100 - y == pytest.approx(100 * estimate.value, abs=0.01)
        np.testing.assert_allclose(numbers(shown), 100 * np.array(estimate[:3]), atol=0.0501)
    assert len(line["points"]) > 30
    (line,) = masses["lines"]
    for (said, _), (_, _, shown) in zip(masses["stops"], line["points"], strict=True):
        left, right = numbers(said)
        inside = (atoms > left - 1e-2) & (atoms < right + 1e-2)
        assert numbers(shown)[0] == pytest.approx(100 * own.distribution.probs[inside].sum(), abs=0.0051)
    total = sum(numbers(point[2])[0] for point in line["points"])
    assert 99 < total <= 100.2
    assert "Not shown: " in words(pages["own"].read_text(encoding="utf-8"))


def test_calibration_is_that_of_the_first_rows_of_held_out_episodes(own, pages):
    page = pages["own"].read_text(encoding="utf-8")
    seen, chart = own.trust.calibration, values(page)[2]
    assert len(seen.firsts) == 90  # three in ten
    (line,) = chart["lines"]
    for (said, x), (_, y, shown) in zip(chart["stops"], line["points"], strict=True):
        share = float((seen.firsts <= x / 100).mean())
        assert numbers(said) == [pytest.approx(x)]
        assert 100 - y == pytest.approx(100 * share, abs=0.01)
        assert numbers(shown)[0] == pytest.approx(100 * share, abs=0.51)
    assert f"The largest difference from the diagonal is {seen.statistic:.3f}." in words(page)
    assert f"with probability {seen.p_value:.2g} (" in words(page)


def test_why_there_is_no_calibration(pages, several, tmp_path):
    assert "at least 10 episodes" in words(pages["few"].read_text(encoding="utf-8"))
    target = next(found for found in several.values() if found.policy is not None)
    assert "This cannot be checked: the policy did not make the log" in words(made(target, tmp_path))


def test_other_estimates_are_in_one_plot(several, tmp_path):
    found = next(found for found in several.values() if found.policy is not None)
    page = made(found, tmp_path)
    start = page.index("What other methods say")
    part = page[start : page.index("All numbers behind the verdict")]
    names = re.findall(r'<div class="name">([^<]+)', part)
    expected = [
        "This estimate",
        "Ordinary LSTD",
        "Importance sampling",
        "Doubly robust",
        "The policy that made the log",
    ]
    assert names == expected
    others = [*found.comparisons, monte_carlo(found.log, 0.9)]
    means = [found.mean.value, found.lstd_mean, *(other.mean for other in others)]
    shown = [numbers(text)[0] for text in re.findall(r'<div class="number">([^<].*?)</div>', part)]
    np.testing.assert_allclose(shown, means, atol=0.006)
    places = [float(text) for text in re.findall(r'class="dot" style="left: ([\d.]+)%', part)]
    # Places are a straight line through the numbers, whatever the axis is.
    slope, offset = np.polyfit(means, places, 1)
    np.testing.assert_allclose(slope * np.array(means) + offset, places, atol=0.02)
    effective = next(other.episodes for other in others if other.name == "importance sampling")
    assert f"as good as {effective:,.1f} episodes" in words(part)


def test_features_that_were_tried(own, tmp_path):
    rng = np.random.default_rng(0)
    table = {"who": np.repeat(np.arange(24), 4), "x": rng.normal(size=96), "r": rng.normal(size=96)}
    table["end"] = np.tile([False, False, False, True], 24)
    log = Log.read(table, episode="who", state="x", reward="r", terminated="end", discount=0.9)
    found = evaluate_policy(log, intervals="none")
    page = made(found, tmp_path)
    part = page[page.index("Features that were tried") : page.index("The log, and what it cannot say")]
    best: dict[str, float] = {}
    for candidate in found.selection.tried:
        best[candidate.name] = min(candidate.crps, best.get(candidate.name, np.inf))
    assert len(best) > 3
    assert re.findall(r'<div class="name">([^<]+)', part) == sorted(best, key=best.__getitem__)
    chosen = re.findall(r'class="row main" role="listitem">\n<div class="name">([^<]+)<small>chosen', part)
    assert chosen == [found.selection.features.name]
    assert f"one distribution for all states: {found.selection.pooled:.4g}"[:-1] in words(part)
    assert "There are no intervals: none were asked for." in words(page)
    assert 'class="band"' not in page[: page.index("Are the predictions right")]
    assert "nan" not in words(page).lower().split()


def test_every_number_of_trust_has_a_row_with_its_threshold(own, few, several):
    fields = {*Trust._fields} - {"verdict", "reasons"}
    for found in (own, few, *several.values()):
        rows = {row.field: row for row in trust_rows(found)}
        assert fields <= set(rows)
        assert all(row.meaning for row in rows.values())
        said = {finding.about: finding.verdict for finding in reversed(findings(found, found.trust))}
        assert {row.field: row.verdict for row in rows.values() if row.verdict} == {
            field: verdict for field, verdict in said.items() if field in rows
        }
    rows = {row.field: row for row in trust_rows(few)}
    assert rows["episodes"].verdict == "do not use"
    assert rows["episodes"].threshold == "take care below 30, do not use below 5"
    assert rows["radius"].threshold == "do not use above 0.95"
    assert rows["calibration"].value == UNKNOWN


def test_thresholds_are_those_of_the_verdict(own, monkeypatch):
    """Where a threshold is moved past a number, the verdict and the table both say so."""
    fresh = evaluate_policy(own.log, features=own.selection.features.name)
    gap = own.trust.rows_per_feature
    monkeypatch.setattr(thresholds, "ROWS_PER_FEATURE", thresholds.Limit(2 * gap, 1.5 * gap, least=True))
    assert fresh.trust.verdict == "do not use"
    row = next(row for row in trust_rows(fresh) if row.field == "rows_per_feature")
    assert row.verdict == "do not use"
    assert numbers(row.threshold) == [pytest.approx(2 * gap, rel=1e-3), pytest.approx(1.5 * gap, rel=1e-3)]


def test_several_policies_come_first_and_with_their_differences(several, pages):
    page = pages["several"].read_text(encoding="utf-8")
    first = words(page[page.index('<section id="policies">') : page.index('<section id="policy-1">')])
    assert page.count("<section id=") == 1 + 3 + 2
    for name, found in several.items():
        assert first.count(name) >= 2
        assert f"Returns of policy {name}" in words(page)
        assert f"{found.mean.value:.1f}"[:3] in first
    part = page[page.index("Difference of the means") : page.index("Difference of the worst 10%")]
    differences = [several.difference(name, "as now") for name in HOSTILE]
    for text, estimate in zip(re.findall(r'<div class="number">([^<].*?)</div>', part), differences, strict=True):
        assert_shown(re.sub("<[^>]*>", "", text), estimate)


def test_names_are_escaped(pages, tmp_path):
    page = pages["several"].read_text(encoding="utf-8")
    for name in HOSTILE:
        assert name not in page
    assert "&lt;/script&gt;&lt;script&gt;alert(1)" in page
    assert "&#39;&lt;log&gt;.parquet&#39;" in page
    columns = WORLD.play(LOGGED, 30)
    names = ("<script>who</script>", "$\\frac$<i>", "a", "<b>r", "<u>end")
    table = dict(zip(names, (columns[name] for name in ("who", "x", "a", "r", "died")), strict=True))
    who, state, action, reward, end = names
    log = Log.read(table, episode=who, state=state, categorical=state, action=action, reward=reward, terminated=end)
    page = made(evaluate_policy(log, discount=0.9), tmp_path)
    assert not any(name in page for name in names if "<" in name)
    assert names[0] in words(page)
    assert names[1] in words(page)


def test_other_starts_are_said(tmp_path):
    found = evaluate_policy(small_log(60), TARGET, start="rows")
    text = words(made(found, tmp_path))
    assert "Starts are all states of the log." in text
    assert "The other methods start where episodes start; this estimate and LSTD from all states of the log." in text


def test_discounts_in_a_column_are_said(tmp_path):
    columns = WORLD.play(LOGGED, 60)
    columns["g"] = np.full(len(columns["r"]), 0.9)
    names = {"episode": "who", "state": "x", "categorical": "x", "reward": "r", "terminated": "died"}
    log = Log.read(columns, discount="g", **names)
    assert "discounted as the log says." in words(made(evaluate_policy(log), tmp_path))


def test_at_least_one_evaluation(several, tmp_path):
    with pytest.raises(ValueError, match="found must hold at least one evaluation, got none"):
        write_page(type(several)(), tmp_path, COMMAND)


def test_the_page_of_one_policy_names_it(own, tmp_path):
    page = write_page(PolicyEvaluations({"new": own}), tmp_path, "cramerl evaluate")
    assert "Returns of policy new" in words(page.read_text(encoding="utf-8"))
