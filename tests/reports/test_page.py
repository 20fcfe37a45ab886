"""The page of a report and its Markdown: one file, no network, the drawn values, and nothing unescaped."""

import json
import re
from html.parser import HTMLParser

from study_runs import summary_of, write_run

from cramerl import plots
from cramerl.claims import projection
from cramerl.evidence.curves import on_grid
from cramerl.evidence.statistics import Interval, mean_band
from cramerl.reports.build import make_report
from cramerl.reports.figures import grid_edges
from cramerl.reports.page import Distributions, Section, to_html, to_markdown, to_text
from cramerl.reports.tables import interval_text, make_tables

GAMES = ("Asterix-MinAtar", "Breakout-MinAtar")


def page_values(page: str) -> list[list[dict]]:
    found = re.findall(r'<script type="application/json" class="values">(.*?)</script>', page)
    return [json.loads(text) for text in found]


def test_the_page_is_one_file_without_network(written):
    page = (written[1] / "report.html").read_text()
    ids: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attrs):
            found = dict(attrs)
            ids.extend([found["id"]] if "id" in found else [])
            assert tag not in ("img", "iframe", "object")
            assert "src" not in found
            for name in ("href", "xlink:href"):
                assert found.get(name, "#").startswith(("#", "data:,"))

    Reader().feed(page)
    assert len(ids) == len(set(ids))
    assert page.count("<svg") == 3 + 2 + 2  # on one game there are no aggregates and no profiles
    assert "prefers-color-scheme: dark" in page
    assert "currentColor" in page
    assert "default-src 'none'" in page
    assert "cramerl sweep &lt;all&gt;" in page
    assert str(written[1].parent) not in page
    for target in re.findall(r'(?:href="#|url\(#)([^")]+)', page):
        assert target in ids


def test_the_page_holds_the_values_that_are_drawn(main_report):
    (section,), out = main_report
    curves, aggregates, profiles = page_values((out / "report.html").read_text())
    assert [panel["title"] for panel in curves] == list(GAMES)
    summary = section.summary
    for panel in curves:
        env = panel["title"]
        assert [words for words, _ in panel["stops"]] == [f"step {step:,}" for step in range(100, 1001, 100)]
        assert [line["label"] for line in panel["lines"]] == ["dqn", "c51", "s51", "u51"]
        for series, line in zip(summary.series, panel["lines"], strict=True):
            group = summary.best[series, env]
            band = mean_band([on_grid(curve, grid_edges(summary, env)) for curve in group.curves], seed=0)
            expected = [interval_text(Interval(*map(float, values))) for values in zip(*band, strict=True)]
            assert [point[2] for point in line["points"]] == expected
        assert all(0 <= part <= 100 for part in panel["box"])
        assert all(0 <= part <= 100 for line in panel["lines"] for point in line["points"] for part in point[:2])
    assert len(profiles[0]["stops"]) <= 41
    (table,) = (table for table in section.tables if table.name == "aggregates")
    assert [panel["title"] for panel in aggregates] == table.columns[1:-1]
    for column, panel in enumerate(aggregates, start=1):  # bars from the top down, with the words of the table
        assert panel["along"] == "y"
        assert [words for words, _ in panel["stops"]] == [row[0] for row in table.rows]
        assert [at for _, at in panel["stops"]] == sorted(at for _, at in panel["stops"])
        for i, line in enumerate(panel["lines"]):
            (point,) = (point for point in line["points"] if point)
            assert line["points"].index(point) == i
            assert point[2] == table.rows[i][column]


def test_bars_have_titles_for_pages_without_scripts(main_report):
    (section,), out = main_report
    (table,) = (table for table in section.tables if table.name == "aggregates")
    for text in ((out / name).read_text() for name in ("report.html", "figures/aggregates.svg")):
        for row in table.rows:
            assert text.count(f"<title>{row[0]}: IQM {row[1]}</title>") == 2  # the bar, and the mark in it


def test_values_of_settings_that_were_tried(written):
    rates = page_values((written[1] / "report.html").read_text())[-1]
    assert [words for words, _ in rates[0]["stops"]] == ["learning rate 0.0001", "learning rate 0.0005"]
    assert all(None not in line["points"] for line in rates[0]["lines"])


def test_names_are_escaped(tmp_path):
    write_run(tmp_path / "runs" / "a", "c51", "</script><b>-game")
    make_report([tmp_path / "runs"], tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text()
    assert "</script><b>" not in page
    assert page_values(page)[0][0]["title"] == "</script><b>-game"


def test_entries_carry_the_numbers_they_are_sorted_by(main_report):
    (section,), out = main_report
    page = (out / "report.html").read_text()
    score = section.summary.shown[0].score
    assert f'<td data-label="last fifth" data-value="{score.estimate}">{interval_text(score)}</td>' in page


def test_settings_and_versions_are_folded_away(written):
    page = (written[1] / "report.html").read_text()
    details = page[page.rindex('<details class="settings fold"') :]  # of the sweep over learning rates
    assert "Versions: cramerl 0.0, device cpu: cpu." in details
    for name, value in (("learning_rate", "0.0001, 0.0005"), ("seed", "0, 1"), ("steps", "1,000"), ("double_q", "off")):
        assert f'<td data-label="setting">{name}</td><td data-label="value">{value}</td></tr>' in details


def test_claims_of_the_paper_come_last(study):
    claims = [statement.check() for statement in projection.STATEMENTS[:2]]
    summary = summary_of(study / "main")
    sections = [Section(summary, make_tables(summary), [])]
    page, tables = to_html(sections, claims), to_markdown(sections, claims)
    assert page.index('id="theory"') > page.index('id="study-0-settings"')
    assert page.count('<div class="body" id="claim-') == 2
    assert "2 claims" in tables
    assert 'id="theory"' not in to_html(sections)


def test_markdown_tables_keep_their_columns(study):
    summary = summary_of(study / "main")
    sentences = ["No figure of a | b."]
    text = to_markdown([Section(summary, make_tables(summary), [], Distributions((), sentences))])
    assert "\n\n### Scores\n\n| game | agent | last fifth |" in text
    assert text.endswith("### Distributions\n\nNo figure of a \\| b.\n")
    assert "\n\n\n" not in text
    for block in re.findall(r"(?:^\|.*\n)+", text, re.M):
        assert len({line.count(" | ") for line in block.splitlines()}) == 1


def test_variants_of_one_agent_differ_in_colour(tmp_path):
    for steps in (1, 3, 5):
        write_run(tmp_path / "runs" / str(steps), "u51", n_step=steps)
    make_report([tmp_path / "runs"], tmp_path / "out")
    curves = page_values((tmp_path / "out" / "report.html").read_text())[0]
    lines = {line["label"]: line["colour"] for line in curves[0]["lines"]}
    assert list(lines) == ["u51, n_step 1", "u51, n_step 3", "u51, n_step 5"]
    assert lines["u51, n_step 1"] == plots.AGENT_COLOURS["u51"]
    assert len(set(lines.values())) == 3


def test_the_terminal_gets_lines_that_fit(main_report):
    sections = main_report[0]
    for width in (40, 200):
        lines = to_text(sections, width).splitlines()
        assert max(map(len, lines)) <= max(width, 32)
    assert sum(line.startswith("  u51") for line in to_text(sections, 200).splitlines()) == 1
