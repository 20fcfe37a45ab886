"""What `cramerl evaluate --data --ray` does: mean distributions by state, of the policy that made a log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from cramerl import linear, plots
from cramerl._arrays import Floats
from cramerl._extras import load_library
from cramerl._ray import connect
from cramerl.evaluations.processes import PICTURE
from cramerl.linear import DistributionalLSTD
from cramerl.linear.evaluation_file import MADE_BY, write_log_record
from cramerl.linear.sources.layout import Layout
from cramerl.linear.sources.parquet import opened, parquet_files
from cramerl.linear.sources.ray import ray_rows


class ClusterEvaluation(NamedTuple):
    """A fitted model, the columns it was fitted to, and features (n, D) of the first states of the log."""

    model: DistributionalLSTD
    layout: Layout
    states: Floats


def cluster_layout(
    path: str, state: str, next_state: str, reward: str = "reward", terminated: str | None = None
) -> Layout:
    """The columns of a log, from names separated by commas, and a constant feature.

    Args:
        path: Parquet files, as in `read_parquet`.
        state: the columns with the features of the state, or one column of lists.
        next_state: the same for the next state.
        reward: the column of rewards.
        terminated: the column that says where returns end; None: the column "terminated", if there is one.
    """
    types = load_library("pyarrow.types")
    with opened(parquet_files(path)[0]) as content:
        schema = content.schema_arrow
    if twice := sorted({name for name in schema.names if schema.names.count(name) > 1}):
        raise ValueError(f"columns must have different names, {path} has {twice[0]!r} twice")

    def split(text: str) -> list[str] | str:
        lists = text in schema.names and types.is_nested(schema.field(text).type)
        return text if lists else [name.strip() for name in text.split(",")]

    if terminated is None and "terminated" in schema.names:
        terminated = "terminated"
    return Layout(split(state), reward, split(next_state), terminated, linear.with_bias)


def evaluate_on_cluster(
    path: str, layout: Layout, address: str, on_progress: Callable[[str], None], **settings: Any
) -> ClusterEvaluation:
    """Fit a `DistributionalLSTD` to Parquet files on a Ray cluster.

    Args:
        path: the files, as in `read_parquet`.
        layout: their columns, from `cluster_layout`.
        address: of the cluster, "" for the default one.
        on_progress: called with a line of text as the fit advances.
        settings: arguments of `DistributionalLSTD`.
    """
    model = DistributionalLSTD(**settings)
    on_progress("starting Ray ..." if not address else f"connecting to {address} ...")
    here = connect(address or None, import_from_here=False)  # the workers need no module of the user
    with here, ray_rows(path, layout, on_progress=on_progress) as source:
        model.fit_source(source)
        on_progress("")
        return ClusterEvaluation(model, layout, source.head.features)


def cluster_summary(found: ClusterEvaluation, rows: int = 8) -> str:
    """A table of the first states of the log, and what the support cuts off."""
    model, states, terminated = found.model, found.states[:rows], found.layout.terminated
    columns = {
        "mean": model.predict(states),
        "5%": model.predict_quantile(states, 0.05),
        "median": model.predict_quantile(states, 0.5),
        "95%": model.predict_quantile(states, 0.95),
        "CVaR 10%": model.predict_cvar(states, 0.1),
        "mass": model.predict_masses(states).sum(axis=1),
    }
    lines = ["first states of the log", "".join([f"{'row':>5}", *(f"{name:>11}" for name in columns)])]
    for i in range(len(states)):
        lines.append(f"{i:>5}" + "".join(f"{column[i]:>11.4g}" for column in columns.values()))
    size = f"{model.n_samples_:,} transitions, {model.n_features_in_} features, discount {model.discount}"
    ends = f"returns end where {terminated!r} says so" if terminated else "no column says where returns end"
    lines += ["", f"{size}; {ends}", f"support: {model.support_!r}", f"residual {model.residual_:.1e}"]
    lines += [model.support_report_.sentence, *model.certificate_.sentences]
    return "\n".join(lines)


def write_cluster_evaluation(found: ClusterEvaluation, folder: Path) -> list[Path]:
    """Write the weights as JSON, and as a picture the mean distribution over the first states of the log."""
    model, states = found.model, found.states
    figure, ax = plots.new_figure(1)
    plots.draw_distribution(ax, model.support_.atoms, model.predict_masses(states).mean(axis=0))
    ax.set(xlabel="return", ylabel="mass")
    ax.set_title(f"Mean distribution of the return, first {len(states)} states of the log")
    return [write_log_record(model, found.layout, states, folder), plots.save(figure, folder / PICTURE, MADE_BY)]
