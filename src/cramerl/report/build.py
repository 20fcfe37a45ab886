"""From the folders of runs to a report: a page, tables, figures, and scores for other tools."""

from __future__ import annotations

import math
import os
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from cramerl import plots
from cramerl._files import write_json, write_text
from cramerl.claims import Claim, to_json
from cramerl.evidence.curves import area_under_curve, read_curves
from cramerl.evidence.exports import dopamine_rows, rliable_scores
from cramerl.evidence.protocols import ScoreKind
from cramerl.evidence.scores import SWEPT, Normalised, Summary, full_table, normalised, summarise
from cramerl.report.figures import Figure, make_figures
from cramerl.report.hover import panel_values
from cramerl.report.page import GENERATOR, Distributions, Picture, Section, to_html, to_markdown
from cramerl.report.tables import make_tables

PAGE, TABLES, SCORES, FIGURES, DOPAMINE = "report.html", "tables.md", "scores.json", "figures", "dopamine"


class Look(Protocol):
    """Draws predicted distributions; gives figures, and sentences on what could not be drawn."""

    def of_study(self, summary: Summary) -> tuple[list[Figure], list[str]]:
        """Those of a study's agents."""
        ...

    def of_process(self, folder: Path) -> tuple[list[Figure], list[str]]:
        """Those in a folder that `cramerl evaluate` wrote."""
        ...


def make_report(
    paths: Iterable[str | Path],
    out: Path,
    *,
    tail: float = 0.2,
    seed: int = 0,
    mix_protocols: bool = False,
    unfinished: bool = False,
    scores: ScoreKind = "training",
    pdf: bool = False,
    claims: Sequence[Claim] = (),
    look: Look | None = None,
    evaluations: Sequence[Path] = (),
    on_progress: Callable[[str], None] = lambda words: None,
) -> list[Section]:
    """Read runs and write a report of them, whole or not at all. The same runs give the same bytes.

    Args:
        paths: folders of runs, or folders with such folders below them; none where there are evaluations.
        out: a new or empty folder, or one with an earlier report, which is replaced.
        tail: of the steps at the end of a run that is scored.
        seed: of the bootstrap.
        mix_protocols: show runs of different protocols beside each other, in place of refusing them.
        unfinished: score runs that are not finished though others on their game are, and all where the shortest ends.
        scores: "training", or "evaluation" for the episodes played at the end of iterations.
        pdf: also write the figures as PDF.
        claims: of the paper, from `cramerl.claims.verify`, to be shown after the studies.
        look: draws the distributions that agents predict, see `cramerl.report.scenes`; None: no such pictures.
        evaluations: folders that `cramerl evaluate` wrote, for ``look`` to draw.
        on_progress: is told what is being done.

    Returns:
        What the report says of each study.
    """
    if not 0 < tail <= 1:
        raise ValueError(f"tail must be in (0, 1], got {tail!r}")
    out = Path(out)
    _require_place(out)
    on_progress("reading runs ...")
    paths = list(paths)
    summaries = []
    if paths or not evaluations:
        kept = {"mix_protocols": mix_protocols, "unfinished": unfinished}
        summaries = summarise(read_curves(paths, scores=scores), tail=tail, **kept)
    build = out.resolve().with_name(f".{out.resolve().name}-{os.getpid()}")
    build.mkdir(parents=True)
    try:
        save = _Saver(build / FIGURES, (".svg", ".png", *([".pdf"] if pdf else [])))
        sections = _write(summaries, build, seed, save, claims, look, evaluations, on_progress)
        _put_in_place(build, out.resolve())
    finally:
        shutil.rmtree(build, ignore_errors=True)
        on_progress("")
    return sections


def _require_place(out: Path) -> None:
    """Only an earlier report may be replaced, and only if nothing else has been put there."""
    if not out.exists():
        return
    if not out.is_dir():
        raise ValueError(f"--out must be a folder, {out} is a file")
    if out.resolve() == Path.cwd():
        raise ValueError(
            f"--out must be another folder than the current one, which would be replaced, got {str(out)!r}"
        )
    inside = {path.name for path in out.iterdir()}
    page = out / PAGE
    ours = page.is_file() and f'content="{GENERATOR}"' in page.read_text(encoding="utf-8", errors="replace")[:1000]
    others = sorted(inside - {PAGE, TABLES, SCORES, FIGURES, DOPAMINE})
    if inside and (not ours or others):
        what = f"something else ({others[0]})" if others else "files that are not of a report"
        raise ValueError(f"--out must be new, empty or an earlier report, {out} holds {what}")


def _put_in_place(build: Path, out: Path) -> None:
    old = build.with_name(build.name + "-old")
    if out.exists():
        out.rename(old)
    try:
        build.rename(out)
    except OSError:
        if old.exists():
            old.rename(out)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _write(
    summaries: Sequence[Summary],
    folder: Path,
    seed: int,
    save: _Saver,
    claims: Sequence[Claim],
    look: Look | None,
    evaluations: Sequence[Path],
    on_progress: Callable[[str], None],
) -> list[Section]:
    sections, exports = [], []
    names = _file_names(summaries)
    for summary, name in zip(summaries, names, strict=True):
        on_progress(f"{summary.title} ...")
        scale, notes = normalised(summary) if summary.cells else (None, [])
        with plots.page_style():
            pictures = [save(figure, name) for figure in make_figures(summary, scale, seed)]
            distributions = _distributions(look.of_study(summary), save) if look else Distributions()
        tables = make_tables(summary, scale, seed) if summary.cells else []
        sections.append(Section(summary, [*summary.notes, *notes], tables, pictures, distributions))
        exports.append(_export(summary, scale))
        labels = _labels(summary)
        chosen = [curve for cell in summary.cells.values() for curve in cell.curves]
        for env, rows in dopamine_rows(chosen, labels).items():
            write_json(folder / DOPAMINE / f"{name}{_file_name(env)}.json", rows)
    with plots.page_style():
        found = [_distributions(look.of_process(place), save) for place in evaluations] if look else []
    pictures = [picture for one in found for picture in one.pictures]
    processes = Distributions(pictures, [words for one in found for words in one.sentences])
    theory = {"theory": to_json(claims)} if claims else {}
    write_json(folder / SCORES, {"made_by": GENERATOR, "bootstrap_seed": seed, "studies": exports} | theory)
    write_text(folder / TABLES, to_markdown(sections, claims, processes))
    write_text(folder / PAGE, to_html(sections, claims, processes))
    return sections


def _distributions(found: tuple[list[Figure], list[str]], save: _Saver) -> Distributions:
    figures, sentences = found
    return Distributions([save(figure) for figure in figures], sentences)


def _file_name(words: str) -> str:
    return re.sub(r"[^\w.-]+", "-", words).strip("-.") or "study"


def _file_names(summaries: Sequence[Summary]) -> list[str]:
    """What the files of each study begin with: nothing where there is one."""
    if len(summaries) == 1:
        return [""]
    names = [_file_name(summary.title) for summary in summaries]
    return [f"{name}-" if names.count(name) == 1 else f"{name}-{i}-" for i, name in enumerate(names)]


class _Saver:
    """Writes figures in every format, the one of the page first."""

    def __init__(self, folder: Path, formats: Sequence[str]):
        self.folder, self.formats = folder, formats

    def __call__(self, figure: Figure, prefix: str = "") -> Picture:
        file = f"{prefix}{figure.name}"
        svg = plots.save_same(figure.drawing, self.folder / f"{file}{self.formats[0]}")
        svg = plots.put_titles(svg, figure.titles)
        values = panel_values(figure.panels)
        for suffix in self.formats[1:]:
            plots.save_same(figure.drawing, self.folder / f"{file}{suffix}")
        return Picture(figure.name, figure.title, figure.caption, svg.read_text(encoding="utf-8"), values, file)


def _labels(summary: Summary) -> dict[int, str]:
    return {id(curve): cell.series.label for cell in summary.points for curve in cell.curves}


def _export(summary: Summary, scale: Normalised | None) -> dict[str, Any]:
    """Scores of a study as plain values: rliable's arrays, and every run by itself."""
    content: dict[str, Any] = {
        "name": summary.title,
        "command": summary.study.command,
        "score": f"mean return of the episodes in the last {summary.tail:g} of the steps",
        "protocol": {env: [one.sentence for one in summary.protocols[env]] for env in summary.games},
        "runs": [row for cell in summary.points for row in _runs(cell)],
    }
    games, series = full_table(summary, summary.games)
    if series:
        chosen = [curve for one in series for env in games for curve in summary.cells[one, env].curves]
        found = rliable_scores(chosen, tail=summary.tail, labels=_labels(summary), steps=summary.steps)
        content["rliable"] = {
            "games": found.games,
            "scores": _plain(found.scores),
            "steps": _plain(found.steps),
            "curves": _plain(found.curves),
            "seeds": found.seeds,
        }
    if scale is not None:
        parts = {one.label: [runs.tolist() for runs in scores] for one, scores in scale.scores.items()}
        content["normalised"] = {"games": scale.games, "scale": scale.words, "scores_by_game": parts}
    return content


def _runs(cell: Any) -> list[dict[str, Any]]:
    rows = []
    for curve, score in zip(cell.curves, cell.scores, strict=True):
        row = {"agent": cell.series.label, "game": cell.env, "seed": curve.seed, "score": float(score)}
        row |= {"whole_run": area_under_curve(curve, cell.steps), "steps": cell.steps}
        row |= {name: curve.learned_with[name] for name in SWEPT if name in curve.learned_with}
        rows.append(row)
    return rows


def _plain(arrays: dict[str, Any]) -> dict[str, Any]:
    """Arrays as lists; JSON has no NaN, so what is not there is null."""
    return {name: _without_nan(array.tolist()) for name, array in arrays.items()}


def _without_nan(values: Any) -> Any:
    if isinstance(values, list):
        return [_without_nan(value) for value in values]
    return values if math.isfinite(values) else None
