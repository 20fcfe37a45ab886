"""What `cramerl evaluate` does: from words on a command line to an evaluation, its files and its picture."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cramerl import linear, plots
from cramerl._files import write_json, write_whole
from cramerl.linear import DistributionalLSTD, Evaluation, MarkovRewardProcess
from cramerl.linear.examples import gridworld, queue, random_walk, ring
from cramerl.linear.logs import ParquetRows
from cramerl.linear.parquet import Layout, opened, parquet_files
from cramerl.linear.ray_logs import ray_rows
from cramerl.linear.samples import DependentColumnsError
from cramerl.supports import Support

EXAMPLES: dict[str, Callable[..., MarkovRewardProcess]] = {
    "random-walk": random_walk,
    "ring": ring,
    "gridworld": gridworld,
    "queue": queue,
}
# Name -> builder from (number of states, the number after the colon).
FEATURES: dict[str, Callable[[int, int], NDArray[np.float64]]] = {
    "aggregation": linear.aggregation,
    "polynomial": lambda states, degree: linear.polynomial(np.arange(states), degree),
    "fourier": lambda states, order: linear.fourier(np.arange(states), order),
    "rbf": lambda states, centres: linear.rbf(np.arange(states), centres),
    "random": lambda states, number: linear.random_features(states, number, seed=0),
}

_LAWS = 1000  # states whose distributions are written out


def named_process(name: str, policy: str, discount: float) -> MarkovRewardProcess:
    """A built-in example by its name, or a tabular Gymnasium environment by its id, under a policy."""
    if name in EXAMPLES:
        if policy != "uniform":
            raise ValueError(f"--policy must be left out for {name}, which has no actions, got {policy!r}")
        return EXAMPLES[name](discount=discount)
    import gymnasium

    try:
        gymnasium.spec(name)
    except (gymnasium.error.Error, ValueError) as error:
        known = ", ".join(EXAMPLES)
        given = f"got {name!r} ({error})"
        raise ValueError(f"process must be {known} or the id of a tabular Gymnasium environment, {given}") from None
    return MarkovRewardProcess.from_gymnasium(name, load_policy(policy), discount)


def load_policy(policy: str) -> Any:
    """The word "uniform", or an array of probabilities or actions from a .npy or .csv file."""
    if policy == "uniform":
        return policy
    path = Path(policy)
    if path.suffix not in (".npy", ".csv"):
        raise ValueError(f"--policy must be 'uniform' or a .npy or .csv file, got {policy!r}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # an empty file only warns
            table = np.load(path, allow_pickle=False) if path.suffix == ".npy" else np.loadtxt(path, delimiter=",")
    except FileNotFoundError:
        raise
    except (OSError, ValueError, EOFError, UserWarning):
        raise ValueError(f"--policy must be a file of numbers, got {policy!r}, which cannot be read as such") from None
    whole = table.ndim == 1 and table.dtype.kind == "f" and (table == np.floor(table)).all()
    return table.astype(int) if whole else table  # a .csv file cannot say that its numbers are integers


def named_features(text: str, process: MarkovRewardProcess, *, bias: bool) -> NDArray[np.float64]:
    """Features from text such as "tabular", "fourier:5" or "aggregation:20".

    "tabular" has a feature for each state that the policy visits; nothing can be learned of the others.
    """
    num_states = process.num_states
    if text == "tabular":
        return linear.tabular(num_states)[:, process.stationary_distribution() > 0]
    name, _, number = text.partition(":")
    if name not in FEATURES or not number.isdecimal():
        allowed = "tabular, " + ", ".join(f"{known}:N" for known in FEATURES)
        raise ValueError(f"--features must be one of {allowed}, got {text!r}")
    built = FEATURES[name](num_states, int(number))
    return linear.with_bias(built) if bias else built


def write_evaluation(evaluation: Evaluation, folder: Path) -> list[Path]:
    """The numbers as JSON and the distributions of the most visited states as a picture."""
    content = {
        "process": repr(evaluation.problem.process),
        "support": evaluation.support.atoms.tolist(),
        "normalisation": evaluation.problem.normalisation,
        "method": evaluation.method,
        "iterations": evaluation.iterations,
        "residual": evaluation.residual,
        "values": evaluation.values.tolist(),
        "total_mass": evaluation.total_mass.tolist(),
        "weights": evaluation.weights.tolist(),
        "state_distribution": evaluation.problem.state_distribution.tolist(),
        "certificate": evaluation.certificate.to_dict(),
        "distributions": _most_visited(evaluation),
    }
    return [
        write_json(folder / "evaluation.json", _without_nan(content)),
        write_whole(folder / "evaluation.png", evaluation.plot),
    ]


class LogColumns(NamedTuple):
    """Names of the columns of a log: features of the state and the next one, the reward, and where returns end."""

    state: list[str] | str
    reward: str
    next_state: list[str] | str
    terminated: str | None


class LogEvaluation(NamedTuple):
    """A fitted model, and the first states of the log to show it on, their constant feature included."""

    model: DistributionalLSTD
    columns: LogColumns
    states: NDArray[np.float64]


def log_columns(path: str, state: str, next_state: str, reward: str, terminated: str | None) -> LogColumns:
    """Columns from words with commas between; a column named "terminated" is taken where none is named."""
    from pyarrow import types

    with opened(parquet_files(path)[0]) as content:
        schema = content.schema_arrow

    def split(text: str) -> list[str] | str:
        """One column of lists goes by its name alone."""
        lists = text in schema.names and types.is_nested(schema.field(text).type)
        return text if lists else text.split(",")

    if terminated is None and "terminated" in schema.names:
        terminated = "terminated"
    return LogColumns(split(state), reward, split(next_state), terminated)


def evaluate_log(
    path: str,
    columns: LogColumns,
    support: Support | None,
    discount: float,
    *,
    bias: bool,
    on_progress: Callable[[str], None],
    cluster: str | None = None,
    **settings: Any,
) -> LogEvaluation:
    """Fit a `DistributionalLSTD` to Parquet files, in chunks; on a Ray cluster where its address is given ("": any)."""
    layout = Layout(*columns, linear.with_bias if bias else None)
    model = DistributionalLSTD(support, discount, **settings)
    rows: AbstractContextManager[Any]
    if cluster is None:
        rows = nullcontext(ParquetRows(path, layout, None, on_progress))
    else:
        on_progress("starting Ray ..." if not cluster else f"connecting to {cluster} ...")
        rows = ray_rows(path, layout, address=cluster or None, on_progress=on_progress)
    with rows as source:
        try:
            model.fit_source(source)
        except DependentColumnsError as error:
            named = columns.state if isinstance(columns.state, str) else ",".join(columns.state)
            constant = " and of the constant that is added to them" if bias else ""
            hint = "; --no-bias adds none" if bias else ""
            raise ValueError(
                f"--state must name columns that are linearly independent of each other{constant}, got {named}{hint}"
            ) from error
        on_progress("")
        return LogEvaluation(model, columns, source.head.features)


def log_summary(found: LogEvaluation, rows: int = 8) -> str:
    """A table of the first states of the log, and what the support cuts off."""
    model, states = found.model, found.states[:rows]
    mean = model.predict(states)
    low, median, high = (model.predict_quantile(states, level) for level in (0.05, 0.5, 0.95))
    worst = model.predict_cvar(states, 0.1)
    mass = model.predict_masses(states).sum(axis=1)
    names = ("mean", "5%", "median", "95%", "CVaR 10%", "mass")
    lines = ["first states of the log", "".join([f"{'row':>5}", *(f"{name:>11}" for name in names)])]
    for i in range(len(states)):
        cells = "".join(f"{column[i]:>11.4g}" for column in (mean, low, median, high, worst, mass))
        lines.append(f"{i:>5}{cells}")
    size = f"{model.n_samples_:,} transitions, {model.n_features_in_} features, discount {model.discount}"
    ends = f"returns end where {found.columns.terminated!r} says so"
    lines += ["", f"{size}; {ends if found.columns.terminated else 'no column says where returns end'}"]
    lines += [f"support: {model.support_!r}", f"residual {model.residual_:.1e}", model.support_report_.sentence]
    lines += model.certificate_.sentences if model.certificate_ else ()
    return "\n".join(lines)


def write_log_evaluation(found: LogEvaluation, folder: Path) -> list[Path]:
    """The weights as JSON, and as a picture the mean distribution over the first states of the log."""
    model = found.model
    content = {
        "columns": found.columns._asdict(),
        "discount": model.discount,
        "support": model.support_.atoms.tolist(),
        "normalisation": model.normalisation,
        "transitions": model.n_samples_,
        "residual": model.residual_,
        "support_report": model.support_report_._asdict(),
        "certificate": model.certificate_._asdict() if model.certificate_ else None,
        "weights": model.weights_.tolist(),
        "distributions": _distributions(
            np.arange(len(found.states)), model.predict_masses(found.states), model.predict(found.states)
        ),
    }
    figure, ax = plots.new_figure(1)
    plots.draw_distribution(ax, model.support_.atoms, model.predict_masses(found.states).mean(axis=0))
    ax.set(xlabel="return", ylabel="mass")
    ax.set_title(f"Mean distribution of the return, first {len(found.states)} states of the log")
    return [write_json(folder / "evaluation.json", content), plots.save(figure, folder / "evaluation.png")]


def _most_visited(evaluation: Evaluation) -> dict[str, Any]:
    """The distributions of the states that are visited most, for `cramerl watch`."""
    visited = evaluation.problem.state_distribution
    rows = np.sort(np.argsort(-visited, kind="stable")[:_LAWS])
    offset = 1 / evaluation.support.num_atoms if evaluation.problem.normalisation == "affine" else 0.0
    masses = evaluation.problem.features[rows] @ evaluation.weights + offset
    return _distributions(rows, masses, evaluation.values[rows], visited[rows])


def _distributions(
    states: NDArray[Any], masses: NDArray[Any], means: NDArray[Any], visited: NDArray[Any] | None = None
) -> dict[str, Any]:
    """Distributions of some states as plain values, to six digits."""
    shares = np.full(len(states), 1 / len(states)) if visited is None else visited

    def rounded(values: NDArray[Any]) -> list[float]:
        return [float(f"{value:.6g}") for value in values]

    return {
        "states": states.tolist(),
        "means": rounded(means),
        "visited": rounded(shares),
        "masses": [rounded(row) for row in masses],
    }


def _without_nan(content: Any) -> Any:
    """JSON has no NaN: what could not be computed is null."""
    if isinstance(content, dict):
        return {key: _without_nan(value) for key, value in content.items()}
    return None if isinstance(content, float) and not np.isfinite(content) else content
