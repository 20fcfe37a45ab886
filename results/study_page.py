"""Makes what docs/study.md and docs/study/findings.md show, from the runs beside this file.

python results/study_page.py [FOLDER]

FOLDER is docs/study. It gets figures/, comparisons.csv and scores.csv. The same runs give the same bytes.
"""

import argparse
import csv
import io
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cramerl import plots
from cramerl._arrays import Floats
from cramerl._files import write_text
from cramerl.cli.main import exit_status
from cramerl.evidence.aggregates import full_table
from cramerl.evidence.curves import Curve, area_under_curve, final_score, read_curves
from cramerl.evidence.scores import Series, learning_rate
from cramerl.evidence.statistics import Interval, bootstrap_interval, normalise
from cramerl.evidence.summary import Summary, summarise
from cramerl.reports.figures import make_figures, series_look
from cramerl.reports.tables import interval_text
from cramerl.runs.config import SETTINGS

RESULTS = Path(__file__).parent
ILLUSTRATIONS = ("shipped-agents",)  # no evidence
NARROW, WIDE = 2.8, 4.0  # inches: three narrow panels, or two wide ones, are as wide as the page's text
C51, L51, S51, U51, DQN, QR = map(Series, ("c51", "l51", "s51", "u51", "dqn", "qr"))
S51_MEANS = Series("s51", (("mean_weight", 0.1),))
U51_MEANS = Series("u51", (("base_distribution", "zero"), ("mean_weight", 0.1)))  # as the preset minatar has it
# Figures of docs/study/findings.md.
FINDINGS = (
    ("minatar", "curves"),
    ("minatar-rates", "rates"),
    ("minatar-means", "rates"),
    ("minatar-u51", "rates"),
    ("minatar-penalties", "penalties"),
    ("minatar-steps", "curves"),
    ("pong-misc", "curves"),
    ("pong-misc-rates", "rates"),
    ("pong-longer", "curves"),
    ("atari-longer", "curves"),
    ("atari-rates", "rates"),
)
OF_ALL = ("learning_rate", "seed", "steps")  # columns of their own


def own_support(curve: Curve) -> bool:
    """Whether the support finds itself, in a run with one step and the paper's signed targets."""
    config = curve.config
    return config.v_min is None and config.n_step == 1 and (not signed(curve) or config.next_distribution == "signed")


def signed(curve: Curve) -> bool:
    """Whether the agent's masses may be negative."""
    return curve.agent in ("s51", "u51")


def study(name: str, wanted: Callable[[Curve], bool] = lambda curve: True) -> Summary:
    """The runs of a folder that are wanted, as one study."""
    (found,) = summarise([curve for curve in read_curves([RESULTS / name]) if wanted(curve)])
    return found


def by_game(summary: Summary, series: Series) -> dict[str, Floats]:
    """The scores of a series on the games that all have played."""
    games, _ = full_table(summary.best, summary.games, summary.series)
    return {env: summary.best[series, env].scores for env in games}


def scaled(summary: Summary, series: Series) -> list[Floats]:
    """Its scores in each game, divided by C51's mean score there."""
    reference = by_game(summary, C51)
    return [normalise(runs, 0.0, reference[env].mean()) for env, runs in by_game(summary, series).items()]


def compare(summary: Summary, pairs: Sequence[tuple[Series, Series]]) -> Iterator[tuple[str, str, str, Interval]]:
    """The difference of each pair's mean scores on each game, and over all games on C51's scale."""
    for first, second in pairs:
        if {first, second} <= set(summary.series):
            mine, other = by_game(summary, first), by_game(summary, second)
            for env in mine:
                yield first.label, second.label, env, bootstrap_interval("difference_of_means", mine[env], other[env])
            both = scaled(summary, first), scaled(summary, second)
            yield first.label, second.label, "all, divided by c51's", bootstrap_interval("difference_of_means", *both)


def compare_rates(summary: Summary) -> Iterator[tuple[str, str, str, Interval]]:
    """What each agent gains on each game at the rate 1e-4, over the preset's 3e-4."""
    scores = {(group.series, group.env, learning_rate(group)): group.scores for group in summary.groups}
    for series, env in summary.best:
        slow, usual = (scores.get((series, env, rate)) for rate in (1e-4, 3e-4))
        if slow is not None and usual is not None:
            found = bootstrap_interval("difference_of_means", slow, usual)
            yield f"{series.label}, learning_rate 1e-4", "learning_rate 3e-4", env, found


def draw(name: str, summary: Summary) -> Any:
    """One of the figures of `cramerl report`, at the size of the page."""
    three = len(summary.games) in (3, 5, 6)  # side by side
    panel = NARROW if three else WIDE, 2.7 if summary.family == "Atari" or not three else 2.3
    return next(figure.drawing for figure in make_figures(summary, panel=panel) if figure.name == name)


def complete(curves: Sequence[Curve]) -> list[Curve]:
    """The runs of C51 and L51 on games on which both have finished all rates and variants of the search."""
    mine = [curve for curve in curves if curve.agent in ("c51", "l51") and curve.finished]
    count = {(agent, env): 0 for agent in ("c51", "l51") for env in {curve.env for curve in mine}}
    for curve in mine:
        count[curve.agent, curve.env] += 1
    return [curve for curve in mine if min(count[agent, curve.env] for agent in ("c51", "l51")) == 4 * 2 * 3]


def draw_iqm(parts: Sequence[tuple[str, Summary]]) -> Any:
    """The IQM of each agent's scores, as parts of C51's, with its interval: a panel for each part."""
    figure, axes = plots.new_figure(len(parts), height=2.3, width=4.2)
    for ax, (title, summary) in zip(axes, parts, strict=True):
        found = {one: bootstrap_interval("iqm", scaled(summary, one)) for one in summary.series}
        order = sorted(found, key=lambda one: -found[one].estimate)
        colours = [series_look(summary, one)["colour"] for one in order]
        labels = [one.agent + (" *" if one.settings else "") for one in order]
        names = [f"{title.split()[0]}-{i}" for i in range(len(order))]
        plots.draw_bars(ax, labels, *np.array([found[one] for one in order]).T, colours=colours, names=names)
        ax.axvline(1.0, color=plots.OTHER_COLOUR, linewidth=0.8, linestyle=":")
        ax.set_title(title, fontsize=10)
        ax.set(xlabel="IQM of scores divided by c51's mean", xlim=(0.3, 1.3))
    return figure


def csv_text(rows: Sequence[Sequence[object]]) -> str:
    """Rows as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def score_rows() -> Iterator[Sequence[object]]:
    """Every finished run: where it is, how it learned, and its scores."""
    yield "folder", "game", "agent", "seed", "steps", "learning_rate", "settings", "score", "whole_run"
    for folder in sorted(path.parent for path in RESULTS.glob("*/sweep.json")):
        if folder.name not in ILLUSTRATIONS:
            curves = [curve for curve in read_curves([folder]) if curve.finished]
            rows = []
            for curve in curves:
                others = [one for one in curves if one.agent == curve.agent]
                rows.append((folder.name, curve, words_of(curve, others)))
            yield from sorted(map(score_row, *zip(*rows, strict=True)), key=lambda row: tuple(map(str, row[:7])))


def words_of(curve: Curve, others: Sequence[Curve]) -> str:
    """The settings in which runs of the same agent in the same folder differ."""
    names = [name for name in SETTINGS if name not in OF_ALL and len({getattr(c.config, name) for c in others}) > 1]
    return " ".join(f"{name}={getattr(curve.config, name)}" for name in names if name != "env")


def score_row(folder: str, curve: Curve, words: str) -> Sequence[object]:
    """A row of the scores."""
    config, values = curve.config, (final_score(curve), area_under_curve(curve))
    scores = ["" if not np.isfinite(value) else f"{value:.6g}" for value in values]
    return folder, curve.env, curve.agent, curve.seed, config.steps, f"{config.learning_rate:g}", words, *scores


def main() -> int:
    """Write everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = RESULTS.parent / "docs" / "study"
    parser.add_argument("out", type=Path, nargs="?", metavar="FOLDER", default=default, help="default: docs/study")
    out: Path = parser.parse_args().out
    (out / "figures").mkdir(parents=True, exist_ok=True)

    short, long = study("defaults-minatar", own_support), study("minatar")
    search = summarise(complete(read_curves([RESULTS / "study-search"])))[0]
    drawings = {
        "page-curves": draw("curves", short),
        "page-iqm": draw_iqm([("0.5 M steps, five games", short), ("2 M steps, four games", long)]),
        "page-rates": draw("rates", search),
        "page-atari": draw("curves", study("atari")),
    }
    drawings |= {f"{folder}-{name}": draw(name, study(folder)) for folder, name in FINDINGS}
    for name, drawing in drawings.items():
        plots.save_same(drawing, out / "figures" / f"{name}.svg")

    rows: list[Sequence[object]] = [("runs", "first", "second", "game", "difference", "low", "high", "text")]
    others = [one for one in {*short.series, *long.series} if one != C51]
    pairs = [(one, C51) for one in sorted(others, key=lambda one: one.order)]
    pairs += [(L51, S51), (U51, S51), (U51_MEANS, S51), (U51_MEANS, S51_MEANS), (U51_MEANS, U51), (S51_MEANS, S51)]
    pairs += [(U51_MEANS, DQN), (QR, DQN)]
    for name, found in (
        ("defaults-minatar", compare(short, pairs)),
        ("minatar", compare(long, pairs)),
        ("study-search", compare_rates(search)),
    ):
        for first, second, game, interval in found:
            rows.append((name, first, second, game, *(f"{value:.4g}" for value in interval), interval_text(interval)))
    write_text(out / "comparisons.csv", csv_text(rows))
    write_text(out / "scores.csv", csv_text(list(score_rows())))
    return 0


if __name__ == "__main__":
    sys.exit(exit_status(main))
