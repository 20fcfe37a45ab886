"""From the folders of runs to a report: a page, tables, figures, and scores for other tools."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cramerl import plots
from cramerl._extras import DEEP_LIBRARIES, require_library
from cramerl._files import is_made_by, write_json, write_text
from cramerl._folders import EVALUATION_FILE
from cramerl.claims import Claim, to_json
from cramerl.evidence.curves import TUNED, Curve, is_run, read_curves, require_different_runs, walk_folders
from cramerl.evidence.exports import dopamine_rows, rliable_scores
from cramerl.evidence.foreign.dopamine import pickle_advice
from cramerl.evidence.foreign.reading import Log, log_at, logs_in, pickles_in, read_logs
from cramerl.evidence.summary import Scoring, Summary, summarise
from cramerl.reports.figures import Figure, make_figures
from cramerl.reports.hover import panel_values
from cramerl.reports.page import GENERATOR, Distributions, Picture, Section, inline_svg, to_html, to_markdown
from cramerl.reports.playing import Budget, draw_agents, draw_process, has_weights
from cramerl.reports.tables import make_tables
from cramerl.runs.folder import run_folders

PAGE, TABLES, SCORES, FIGURES, DOPAMINE = "report.html", "tables.md", "scores.json", "figures", "dopamine"
OnProgress = Callable[[str], None]


def make_report(
    paths: Iterable[str | Path],
    out: str | Path,
    scoring: Scoring | None = None,
    *,
    columns: Mapping[str, str] | None = None,
    claims: Sequence[Claim] = (),
    distributions: bool | None = None,
    pdf: bool = False,
    overwrite: bool = False,
    on_progress: OnProgress = lambda message: None,
) -> list[Section]:
    """Read runs and write a report on them, completely or not at all. The same runs give the same bytes.

    Args:
        paths: folders of runs or of `cramerl evaluate`, or folders that contain such folders at any depth; and logs of
            other libraries: tables, event files of TensorBoard, monitors of Stable-Baselines3, Dopamine's rows.
        out: a new or empty folder, or one with an earlier report, which is replaced.
        scoring: how runs are scored; by default, by their training episodes in the last fifth of their steps.
        columns: of tables, the names of columns by what they mean: agent, env, seed, step, return, episodes. Names that
            are plain need not be given. For event files, the tag of the return.
        claims: the paper's claims from `cramerl.claims.verify`, to be shown after the studies.
        distributions: whether to draw the distributions that agents predict while they play, and those of evaluated
            processes. None draws what can be drawn; True raises an error if there is nothing to draw.
        pdf: also write the figures as PDF.
        overwrite: replace files of a report's names in ``out`` that are not of a report.
        on_progress: called with a message before each step.

    Returns:
        What the report says about each study.
    """
    scoring, out = scoring or Scoring(), Path(out)
    _require_replaceable(out, overwrite)
    on_progress("reading runs ...")
    found = _find([Path(path) for path in paths], distributions)
    curves, evaluations = _read(found, scoring, columns), found.evaluations
    summaries = summarise(curves, scoring) if curves or not evaluations else []
    build = out.resolve().with_name(f".{out.resolve().name}-{os.getpid()}")
    build.mkdir(parents=True)
    try:
        save = partial(_save_figure, folder=build / FIGURES, formats=(".png", ".pdf") if pdf else (".png",))
        with plots.page_style():
            sections = _write_studies(summaries, build, save, distributions is not False, on_progress)
            drawn = [draw_process(folder) for folder in evaluations]
            pictures = [save(figure) for figure in drawn if not isinstance(figure, str)]
        processes = Distributions(pictures, [sentence for sentence in drawn if isinstance(sentence, str)])
        content = {"made_by": GENERATOR, "bootstrap_seed": scoring.seed, "studies": list(map(_export, summaries))}
        write_json(build / SCORES, content | ({"theory": to_json(claims)} if claims else {}))
        write_text(build / TABLES, to_markdown(sections, claims, processes))
        write_text(build / PAGE, to_html(sections, claims, processes))
        _replace(out.resolve(), build)
    finally:
        shutil.rmtree(build, ignore_errors=True)
        on_progress("")
    return sections


def report(
    runs: Any,
    out: str | Path = "out/report",
    *,
    scoring: Scoring | None = None,
    columns: Mapping[str, str] | None = None,
    distributions: bool | None = None,
    pdf: bool = False,
) -> Path:
    """Write a page of figures, tables and statistics of runs, as the command ``cramerl report`` does.

    Args:
        runs: a folder with runs at any depth, a log of another library, or what `cramerl.train` returned; or several.
        out: a new or empty folder, or one with an earlier report, which is replaced.
        scoring: how runs are scored; by default, by their training episodes in the last fifth of their steps.
        columns: of tables, the names of columns by what they mean, such as ``{"agent": "algo"}``; see ``make_report``.
        distributions: whether to draw what agents predict while they play; None: if there are weights.
        pdf: also write the figures as PDF.

    Returns:
        The page.

    Example:
        >>> import cramerl
        >>> cramerl.report("runs", "out/report")  # doctest: +SKIP
    """
    make_report(run_folders(runs), out, scoring, columns=columns, distributions=distributions, pdf=pdf)
    return Path(out) / PAGE


class _Found(NamedTuple):
    """Paths with runs at or below them, folders that `cramerl evaluate` wrote, and logs of other libraries."""

    with_runs: list[Path]
    evaluations: list[Path]
    logs: list[Log]


def _find(paths: Sequence[Path], distributions: bool | None) -> _Found:
    """What there is at or below the paths."""
    with_runs, evaluations, logs, can_play = [], dict[Path, None](), list[Log](), False
    for path in paths:
        if path.is_file():
            logs.append(log_at(path))
            continue
        folders = dict(walk_folders(path))
        runs = [folder for folder, files in folders.items() if is_run(files)]
        theirs = [log for folder, files in folders.items() if not is_run(files) for log in logs_in(folder, files)]
        evaluated = [folder.resolve() for folder, files in folders.items() if EVALUATION_FILE in files]
        if not runs and not theirs and (not evaluated or distributions is False):
            if pickles := [file for folder, files in folders.items() for file in pickles_in(folder, files)]:
                raise ValueError(pickle_advice(pickles[-1]))
            raise ValueError(
                f"{path} contains no runs made by cramerl train or cramerl sweep, and no event files or monitors of "
                "other libraries; tables such as CSV files are named one by one"
            )
        logs += theirs
        with_runs += [path] if runs else []
        evaluations |= dict.fromkeys(evaluated if distributions is not False else ())
        can_play |= distributions is True and any(map(has_weights, runs))
    if can_play:
        require_library(*DEEP_LIBRARIES)
    elif distributions and not evaluations:
        raise ValueError(
            "distributions can be drawn only of runs that kept their weights (their setting checkpoints is full or "
            f"weights) and of folders of cramerl evaluate; there are none in {', '.join(map(str, paths))}"
        )
    return _Found(with_runs, list(evaluations), logs)


def _read(found: _Found, scoring: Scoring, columns: Mapping[str, str] | None) -> list[Curve]:
    """The learning curves. Logs of other libraries join the study of our runs if these are one study."""
    curves = read_curves(found.with_runs, scores=scoring.kind)
    if columns and not found.logs:
        raise ValueError("columns are those of tables or event files of other libraries, and there are none")
    theirs = read_logs(found.logs, scores=scoring.kind, columns=columns) if found.logs else []
    studies = {curve.study for curve in curves}
    if len(studies) == 1:
        theirs = [replace(curve, study=next(iter(studies))) for curve in theirs]
    require_different_runs([*curves, *theirs])
    return [*curves, *theirs]


def _require_replaceable(out: Path, overwrite: bool) -> None:
    """Refuse to replace anything but an earlier report to which nothing was added, or files of its names if asked."""
    if not out.exists():
        return
    if not out.is_dir():
        raise ValueError(f"out must be a folder, {out} is a file")
    if out.resolve() == Path.cwd():
        raise ValueError(f"out must not be the current folder, because it would be replaced; got {str(out)!r}")
    inside = {path.name for path in out.iterdir()}
    page = out / PAGE
    ours = overwrite or is_made_by(page, GENERATOR)
    others = sorted(inside - {PAGE, TABLES, SCORES, FIGURES, DOPAMINE})
    if inside and (not ours or others):
        what = f"something else ({others[0]})" if others else "files that are not part of a report"
        raise ValueError(f"out must be new, empty or an earlier report, {out} contains {what}")


def _replace(out: Path, build: Path) -> None:
    """Move a finished report to its place; if that fails, the earlier one stays."""
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


def _write_studies(
    summaries: Sequence[Summary], build: Path, save: Callable[..., Picture], draw: bool, on_progress: OnProgress
) -> list[Section]:
    """Write the figures and Dopamine's rows of each study."""
    names = [_file_name(summary.title) for summary in summaries]
    sections, budget = [], Budget()
    for i, summary in enumerate(summaries):
        on_progress(f"{summary.title} ...")
        prefix = f"{names[i]}-" if len(summaries) > 1 else ""
        prefix += f"{i}-" if names.count(names[i]) > 1 else ""
        pictures = [save(figure, prefix) for figure in make_figures(summary)]
        figures, sentences = draw_agents(summary, budget, on_progress) if draw else ([], [])
        drawn = Distributions([save(figure) for figure in figures], sentences)
        sections.append(Section(summary, make_tables(summary), pictures, drawn))
        found = dopamine_rows(summary.best.values())
        for stem, rows in zip(_different([f"{prefix}{_file_name(env)}" for env in found]), found.values(), strict=True):
            write_json(build / DOPAMINE / f"{stem}.json", rows)
    return sections


def _different(names: Sequence[str]) -> list[str]:
    """The names, those numbered that an earlier one equals but for case: some disks cannot tell them apart."""
    taken: dict[str, str] = {}
    for name in names:
        free = itertools.chain([name], (f"{name}-{i}" for i in itertools.count(2)))
        stem = next(each for each in free if each.casefold() not in taken)
        taken[stem.casefold()] = stem
    return list(taken.values())


def _file_name(words: str) -> str:
    return re.sub(r"[^\w.-]+", "-", words).strip("-.") or "study"


def _save_figure(figure: Figure, prefix: str = "", *, folder: Path, formats: Sequence[str]) -> Picture:
    """Write a figure in every format under a new name; the page shows the SVG."""
    stem = _file_name(f"{prefix}{figure.name}")
    names = (stem, *(f"{stem}-{i}" for i in range(2, 1000)))
    file = next(name for name in names if not (folder / f"{name}.svg").exists())
    path = plots.save_same(figure.drawing, folder / f"{file}.svg")
    svg = plots.put_titles(path, figure.titles).read_text(encoding="utf-8")
    values = panel_values(figure.panels)
    for suffix in formats:
        plots.save_same(figure.drawing, folder / f"{file}{suffix}")
    points = round(72 * figure.drawing.get_figwidth(), 6)  # as the SVG has it
    return Picture(figure, inline_svg(svg, file), points, values, file)


def _export(summary: Summary) -> dict[str, Any]:
    """The scores of a study as plain values: rliable's arrays, and every run by itself."""
    content: dict[str, Any] = {
        "name": summary.title,
        "command": summary.study.command,
        "score": f"mean return of the episodes in the last {summary.scoring.tail:g} of the steps",
        "protocol": {env: [one.sentence for one in summary.protocols[env]] for env in summary.games},
        "runs": [],
    }
    for group in summary.groups:
        for curve, score, whole in zip(group.curves, group.scores.tolist(), group.whole.tolist(), strict=True):
            row = {"agent": group.series.label, "game": group.env, "seed": curve.seed, "score": score}
            row |= {"whole_run": whole, "steps": group.steps}
            row |= {name: curve.learned_with[name] for name in TUNED if name in curve.learned_with}
            content["runs"].append(row)
    if summary.best:
        content["rliable"] = _plain(rliable_scores(summary.best, summary.games, summary.series)._asdict())
    if (aggregates := summary.aggregates) is not None:
        scores = _plain({one.label: runs for one, runs in aggregates.scores.items()})
        content["normalised"] = {"games": aggregates.games, "scale": aggregates.scale, "scores_by_game": scores}
    return content


def _plain(values: Any) -> Any:
    """Arrays as nested lists. JSON has no NaN, so missing values are null."""
    return json.loads(json.dumps(values, default=np.ndarray.tolist), parse_constant=lambda name: None)
