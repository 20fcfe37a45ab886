"""What `cramerl predict` does: distributions of the returns of new rows, and files of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from cramerl._arrays import Floats
from cramerl._extras import load_library
from cramerl._files import write_whole
from cramerl.evaluations.logs import data_source
from cramerl.linear import SavedEvaluation
from cramerl.linear.logs.columns import Column
from cramerl.measures import cvar, mean, quantile

PREDICTED_BY = "cramerl predict"
_SHOWN, _NAMED = 20, 3


class Asked(NamedTuple):
    """What is asked about each row."""

    quantiles: tuple[float, ...]
    cvars: tuple[float, ...]
    keep: str | None
    """Columns of the data to copy, as names with commas between them; None: none."""


class Predicted(NamedTuple):
    """Predictions for some rows: columns of one value for each row, and probabilities (m, K)."""

    columns: dict[str, Any]
    unlike: list[str]
    probs: Floats


class Counted(NamedTuple):
    """How many rows were predicted, and which of them are unlike those of the log, with the first of the reasons."""

    rows: int = 0
    unlike: int = 0
    examples: tuple[str, ...] = ()

    def add(self, part: Predicted) -> Counted:
        """Count these rows too."""
        found = [f"row {self.rows + i}: {words}" for i, words in enumerate(part.unlike) if words]
        examples = (*self.examples, *found)[:_NAMED]
        return Counted(self.rows + len(part.unlike), self.unlike + len(found), examples)


def predicted(
    saved: SavedEvaluation, text: str, asked: Asked, on_progress: Callable[[str], None]
) -> Iterator[Predicted]:
    """Predictions for the rows in the files of a text, some rows at a time.

    Args:
        saved: the evaluation.
        text: paths, as `data_source` divides them.
        asked: what is asked.
        on_progress: called with a line of text as the work advances.
    """
    support, count = saved.support, 0
    for observations, others in saved.chunks(data_source(text), asked.keep):
        probs = saved.predict(observations)
        columns = {name: _values(column) for name, column in others.items()}
        own = {"mean": mean(support, probs)}
        own |= {f"q{level:g}": quantile(support, probs, level) for level in asked.quantiles}
        own |= {f"cvar{level:g}": cvar(support, probs, level) for level in asked.cvars}
        if taken := sorted({*own, "probs", "unlike"} & set(columns)):
            raise ValueError(f"keep must name columns that predictions do not have, got {taken[0]!r}")
        count += len(probs)
        on_progress(f"{count:,} rows")
        yield Predicted(columns | own, saved.unlike(observations), probs)


def first_rows(parts: Iterator[Predicted]) -> tuple[str, Counted]:
    """The first rows as a table, and the count of all."""
    lines: list[str] = []
    counted = Counted()
    for part in parts:
        if not lines:
            lines.append("".join([f"{'row':>8}", *(f"{name:>12}" for name in part.columns)]))
        for i in range(min(len(part.probs), _SHOWN - counted.rows)):
            cells = [f"{_shown(values[i]):>12}" for values in part.columns.values()]
            lines.append("".join([f"{counted.rows + i:>8}", *cells, "  unlike the log" if part.unlike[i] else ""]))
        counted = counted.add(part)
    _require_rows(counted)
    return "\n".join(lines), counted


def write_predictions(saved: SavedEvaluation, parts: Iterator[Predicted], path: Path) -> Counted:
    """Write predictions as Parquet or CSV, whole or not at all, some rows at a time; the count of all."""
    counted = Counted()

    def tables() -> Iterator[Any]:
        nonlocal counted
        for part in parts:
            counted = counted.add(part)
            yield _arrow(saved, part, lists=path.suffix == ".parquet")
        _require_rows(counted)

    write_whole(path, lambda temporary: _write(temporary, tables()))
    return counted


def predictions_summary(saved: SavedEvaluation, counted: Counted) -> str:
    """How many rows, which are unlike those of the log, and the verdict on the evaluation."""
    lines = [f"{counted.rows:,} rows, discount {saved.discount:g}"]
    if counted.unlike:
        what = "row is" if counted.unlike == 1 else "rows are"
        lines.append(f"warning: {counted.unlike:,} {what} unlike those of the log, so the answer is a guess there:")
        lines += [f"  {example}" for example in counted.examples]
        lines += ["  ..."] if counted.unlike > len(counted.examples) else []
    words = {"use": "use", "care": "take care", "do not use": "do not use"}[saved.verdict]
    against = f": {saved.reasons[0]}" if saved.verdict != "use" and saved.reasons else "."
    lines.append(f"Verdict on the evaluation: {words}{against}")
    return "\n".join(lines)


def _require_rows(counted: Counted) -> None:
    if not counted.rows:
        raise ValueError("source must hold at least one row, got none")


def _values(column: Column) -> list[Any]:
    """The values of a column, None where missing."""
    values = column.values.tolist() if column.levels is None else [column.levels[code] for code in column.values]
    return [None if gone else value for value, gone in zip(values, column.missing_rows(), strict=True)]


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _arrow(saved: SavedEvaluation, part: Predicted, *, lists: bool) -> Any:
    arrow = load_library("pyarrow")
    columns = dict(part.columns)
    if lists:
        flat = arrow.array(part.probs.ravel())
        columns["probs"] = arrow.FixedSizeListArray.from_arrays(flat, part.probs.shape[1])
    columns["unlike"] = part.unlike
    if not lists:
        columns |= {f"p[{atom:.9g}]": part.probs[:, j] for j, atom in enumerate(saved.support.atoms)}
    about = {"made_by": PREDICTED_BY, "atoms": saved.support.atoms.tolist(), "discount": saved.discount}
    about |= {"verdict": saved.verdict, "reasons": list(saved.reasons)}
    return arrow.table(columns).replace_schema_metadata({"cramerl": json.dumps(about)})


def _write(path: Path, tables: Iterator[Any]) -> None:
    first = next(tables)
    make: Any = load_library("pyarrow.parquet").ParquetWriter
    if path.suffix == ".csv":
        make = load_library("pyarrow.csv").CSVWriter
    with make(path, first.schema) as writer:
        writer.write_table(first)
        for table in tables:
            writer.write_table(table.cast(first.schema))
