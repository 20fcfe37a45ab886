"""The files that `cramerl evaluate --data` writes about policies, and what `cramerl predict` reads of them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from cramerl import plots
from cramerl._files import is_made_by, write_json
from cramerl._folders import EVALUATION_FILE, LOG_BYTES, read_inside
from cramerl.evaluations.page import PAGE, write_page
from cramerl.evaluations.processes import PICTURE
from cramerl.linear import PolicyEvaluation, PolicyEvaluations, SavedEvaluation, load_evaluation, save_evaluation
from cramerl.linear.evaluation_file import MADE_BY, distributions_content, without_nan
from cramerl.linear.logs.estimates import ReturnDistribution
from cramerl.linear.logs.observations import Observations
from cramerl.linear.logs.saved_evaluation import MODEL_BYTES, MODEL_FILE
from cramerl.runs.folder import read_object

LOG_FILES = (EVALUATION_FILE, PICTURE, MODEL_FILE, PAGE)
"""What an evaluation of a log writes into its folder."""
_STATES = 100  # of the log, whose distributions are written


def left_by_a_log(folder: Path) -> list[Path]:
    """The files of an earlier evaluation of a log that another evaluation in this folder would not replace."""
    if not is_made_by(folder / PAGE, MADE_BY):
        return []
    return [folder / name for name in (PAGE, MODEL_FILE) if (folder / name).is_file()]


def write_log_evaluation(
    found: PolicyEvaluations, folder: Path, command: str, quantiles: Sequence[float], cvars: Sequence[float]
) -> list[Path]:
    """Write the answers as JSON, as a picture and as a page, and the models that predict new states.

    Args:
        found: the evaluations, by the names of the policies.
        folder: where to.
        command: that made them.
        quantiles: levels that the answers have.
        cvars: fractions that the answers have.
    """
    model = save_evaluation(found, folder)
    content = _content(found, command, quantiles, cvars) | {"model": _digest(model.read_bytes())}
    written = [write_json(folder / EVALUATION_FILE, without_nan(content)), write_picture(found, folder / PICTURE)]
    return [*written, write_page(found, folder, command), model]


def write_picture(found: PolicyEvaluations, path: Path) -> Path:
    """Draw the distribution of each policy's returns, and the CDFs of all with their bands."""
    figure, axes = plots.new_figure(len(found) + 1, height=3.4, width=4.6)
    colours = [plots.POSITIVE, plots.TARGET, plots.ACCENT, plots.NEGATIVE, plots.OTHER_COLOUR]
    for number, (name, each) in enumerate(found.items()):
        answer, ax = each.distribution, axes[number]
        _draw_density(ax, answer, colours[number % len(colours)])
        ax.set_title(f"{name or 'Return'}: mean {answer.mean}", fontsize=10)
        _draw_cdf(axes[-1], answer, name or "CDF", colours[number % len(colours)])
    axes[-1].set(xlabel="return", ylabel="probability of this return or less", ylim=(-0.02, 1.02))
    answer = next(iter(found.values())).distribution
    band = "" if answer.influence is None else f", with {100 * answer.level:g}% intervals"
    axes[-1].set_title(f"CDF{band}", fontsize=10)
    if len(found) > 1:
        axes[-1].legend(frameon=False, fontsize=9)
    return plots.save(figure, path, MADE_BY)


def read_saved(folder: Path, policy: str | None = None) -> SavedEvaluation:
    """The saved evaluation in a folder, if it is the one that evaluation.json there is about."""
    found = load_evaluation(folder, policy)
    try:
        digest = read_object(folder, EVALUATION_FILE, lambda content: content.get("model"), most=LOG_BYTES)
    except FileNotFoundError:
        return found
    if digest != _digest(read_inside(folder, MODEL_FILE, most=MODEL_BYTES)):
        raise ValueError(f"{folder / MODEL_FILE} belongs to another evaluation than {EVALUATION_FILE}: evaluate again")
    return found


def _content(
    found: PolicyEvaluations, command: str, quantiles: Sequence[float], cvars: Sequence[float]
) -> dict[str, Any]:
    first = next(iter(found.values()))
    log, model = first.log, first.model
    states, numbers = _some_states(first)
    masses = model.predict_masses(first._rows.of_states(states))
    means = model.predict_mean(first._rows.of_states(states))
    even = np.full(len(numbers), 1.0 / len(numbers))
    return {
        "made_by": MADE_BY,
        "command": command,
        "log": {
            "columns": {name: value for name, value in _plain(log.layout).items() if value},
            "counts": _plain(log.counts),
            "notes": list(log.notes),
        },
        "start": first.settings_start,
        "discount": first.discount,
        "level": None if first.distribution.influence is None else first.distribution.level,
        "policies": [_policy_content(name, each, quantiles, cvars) for name, each in found.items()],
        "differences": [_difference(found, a, b, cvars) for a, b in combinations(found, 2)],
        "support": model.support_.atoms.tolist(),
        "normalisation": model.normalisation,
        "residual": model.residual_,
        "state_columns": _values(first, states),
        "distributions": distributions_content(numbers, means, even, masses),
    }


def _policy_content(
    name: str, found: PolicyEvaluation, quantiles: Sequence[float], cvars: Sequence[float]
) -> dict[str, Any]:
    answer, model = found.distribution, found.model
    low, high = answer.band()
    content = {
        "name": name,
        "made_the_log": found.policy is None,
        "mean": found.mean,
        "quantiles": [{"level": q, **found.quantile(q)._asdict()} for q in quantiles],
        "cvar": [{"level": a, **found.cvar(a)._asdict()} for a in cvars],
        "distribution": {
            "atoms": answer.support.atoms.tolist(),
            "probs": answer.probs.tolist(),
            "cdf_low": [*low.tolist(), 1.0],
            "cdf_high": [*high.tolist(), 1.0],
        },
        "trust": found.trust,
        "comparisons": found.comparisons,
        "features": {
            "name": found.selection.features.name,
            "columns": model.n_features_in_,
            "tried": found.selection.tried,
            "pooled_crps": found.selection.pooled,
        },
        "lstd_mean": found.lstd_mean,
        "method": model.method_,
        "residual": model.residual_,
        "support_report": model.support_report_,
        "certificate": model.certificate_,
        "messages": found.messages,
    }
    return _plain(content)


def _difference(found: PolicyEvaluations, first: str, second: str, cvars: Sequence[float]) -> dict[str, Any]:
    worst = [{"level": a, **found.difference(first, second, "cvar", a)._asdict()} for a in cvars]
    return _plain({"first": first, "second": second, "mean": found.difference(first, second), "cvar": worst})


def _some_states(found: PolicyEvaluation) -> tuple[Observations, Any]:
    """States spread over the transitions of the log, and the numbers of these."""
    count = found.log.num_transitions
    numbers = np.unique(np.linspace(0, count - 1, min(_STATES, count)).round().astype(np.intp))
    parts, first = [], 0
    for block in found.log.blocks():
        here = numbers[(numbers >= first) & (numbers < first + len(block.current))] - first
        parts.append(block.observations.take(block.current[here]))
        first += len(block.current)
    return Observations.join(parts), numbers


def _values(found: PolicyEvaluation, states: Observations) -> dict[str, list[Any]]:
    """The columns of states."""
    schema = found.log.schema
    values: dict[str, list[Any]] = {name: states.numbers[:, j].tolist() for j, name in enumerate(schema.number_names)}
    for j, (name, levels) in enumerate(zip(schema.category_names, schema.levels, strict=True)):
        values[name] = [_plain(levels[code]) for code in states.codes[:, j]]
    return values


def _plain(value: Any) -> Any:
    """A named tuple, or what is in one, as JSON; arrays are left out, and numbers that are not finite are null."""
    if hasattr(value, "_asdict"):
        fields = value._asdict()
        return {name: _plain(part) for name, part in fields.items() if not isinstance(part, np.ndarray)}
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, tuple | list | frozenset):
        return [_plain(part) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _draw_density(ax: Any, answer: ReturnDistribution, colour: str) -> None:
    """The mass of each atom over its part of the axis: atoms may lie closer together in one place than in another."""
    atoms = answer.support.atoms
    edges = np.concatenate([atoms[:1], (atoms[1:] + atoms[:-1]) / 2, atoms[-1:]])
    ax.stairs(answer.probs / np.diff(edges), edges, fill=True, color=colour, alpha=0.8)
    ax.axvline(answer.mean.value, **plots.MEAN)
    seen = np.flatnonzero(answer.probs > plots.LEAST_MASS)
    ax.set(xlabel="return", ylabel="probability per unit of return")
    ax.set(xlim=plots.return_limits(float(edges[seen[0]]), float(edges[seen[-1] + 1])))


def _draw_cdf(ax: Any, answer: ReturnDistribution, name: str, colour: str) -> None:
    """The steps of a CDF, with its band."""
    atoms = np.repeat(answer.support.atoms, 2)[1:]
    middle, low, high = (np.repeat(np.append(heights, 1.0), 2)[:-1] for heights in (answer.heights, *answer.band()))
    plots.draw_band(ax, atoms, middle, low, high, label=name, colour=colour)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
