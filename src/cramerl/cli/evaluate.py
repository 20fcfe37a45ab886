"""`cramerl evaluate`: return distributions of a policy, from a process or a log."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any

from cramerl._extras import require_library
from cramerl.cli.flags import Outputs, add_overwrite_flag, given_flags, integer_from, show_progress
from cramerl.cli.log_flags import (
    COLUMNS,
    LOG_ONLY,
    WITH_RAY,
    add_log_flags,
    answer_settings,
    errors_name_flags,
    in_flags,
)
from cramerl.supports import Support

EXAMPLES = """\
examples of processes:
  cramerl evaluate FrozenLake-v1                              a uniform policy on a tabular environment of Gymnasium
  cramerl evaluate gridworld --policy actions.npy             a policy of yours: actions, or probabilities of them
  cramerl evaluate queue --features fourier:5 --discount 0.99 fewer features than states

examples of logs:
  cramerl evaluate --data example:machines                    a log that comes with cramerl, whose columns have names
  cramerl evaluate --data example:machines --policy 'careful=careful_*' --policy now=log
                                                              would it pay to service sooner? two policies compared
  cramerl evaluate --data icu.csv --episode patient --time day --state 'x*,ward' --terminated 'died|discharged' \\
      --reward cost --discount 1                              a log of yours, of the policy that made it
  cramerl evaluate --data icu.parquet ... --action dose --policy new.npy --strict
                                                              a policy that never acted; status 3 if not to be trusted
  cramerl evaluate --data log.parquet --state x,y --next-state x2,y2 --features columns
                                                              rows that are no episodes; features of your own
  cramerl evaluate --data 'logs/*.parquet' --state x --next-state x2 --ray

A log of one row for each step is read from Parquet or CSV files, folders of them, URLs or minari:NAME. The answer
comes first: mean, quantiles and the mean of the worst returns, with intervals. Then a verdict says whether to use it,
and why.

cramerl predict OUT gives the distributions of new rows, cramerl watch OUT shows them state by state, cramerl report OUT
puts them into a report.

exit status: 0 done; 2 bad input; 3 with --strict, if the verdict on an answer is "do not use"; 130 stopped by Ctrl-C
"""

# Settings that concern only a process; the parser has no defaults for them, to see which were given.
PROCESS_ONLY = ("bias", "normalisation", "method")


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    parser.description = (
        "The distribution of the return: of every state of a process that is known (an example or a tabular Gymnasium\n"
        "environment), or of a policy from a log, whether it made the log or never acted. Prints the\n"
        "answer and what is known about its quality; writes evaluation.json, evaluation.png and, of a log, model.npz."
    )
    parser.epilog = EXAMPLES
    add = parser.add_argument
    add("process", nargs="?", help="random-walk, ring, gridworld, queue, or a Gymnasium id such as FrozenLake-v1")
    add(
        "--data",
        metavar="PATH",
        help="a log instead of a process: Parquet or CSV files (with commas between them, a folder, 'a*.parquet' or a "
        "URL), minari:NAME or example:machines",
    )
    add("--discount", help="a number (default: 0.95 for a process, else 0.99), or for a log the name of a column")
    add(
        "--policy",
        action="append",
        help="of a process 'uniform' (the default), or a .npy or .csv file of probabilities (S, A) or actions (S,). Of "
        "a log: such a file for its only state column, or columns of probabilities of its actions, such as "
        "'new_*', or 'log' (the default). NAME=POLICY several times compares policies",
    )
    add(
        "--features",
        help="of a process: tabular (the default), aggregation:N, polynomial:N, fourier:N, rbf:N or random:N, "
        "functions of the state's number. Of a log: columns, bins:N, splines:N, rbf:N, fourier:N or random:N (default: "
        "the best on held-out episodes)",
    )
    add("--atoms", type=integer_from(2), metavar="K", help="atoms of the support (default: 51, for a log as needed)")
    add("--v-min", type=float, help="smallest return of the support (default: from the process or the data)")
    add("--v-max", type=float, help="largest return of the support")
    add("--out", type=Path, default=Path("out/evaluate"), help="folder to write to (default: %(default)s)")
    add_overwrite_flag(parser)
    add = parser.add_argument_group("of a process").add_argument
    add("--bias", action="store_true", help="add a constant feature")
    add("--normalisation", choices=("before", "after", "affine"), help="how the mass is kept at one (default: before)")
    methods = ("auto", "direct", "krylov", "iteration")
    add("--method", choices=methods, help="how the equations are solved (default: auto)")
    add_log_flags(parser)


def run(options: argparse.Namespace) -> int:
    """Evaluate a process or a log."""
    require_library("matplotlib")
    if (options.process is None) == (options.data is None):
        raise ValueError(
            "give either a process to evaluate or --data FILE (or a folder of them); see cramerl evaluate --help"
        )
    for flag in given_flags(options, PROCESS_ONLY if options.data else LOG_ONLY):
        other = "a process" if options.data else "--data"
        raise ValueError(f"{flag} belongs to {other} and would be ignored here: leave it out")
    from cramerl import evaluations

    on_cluster = options.ray is not None
    outputs = Outputs(evaluations.MADE_BY, overwrite=options.overwrite)
    outputs.check_folder(options.out, evaluations.LOG_FILES if options.data and not on_cluster else evaluations.FILES)
    work = _evaluate_process if not options.data else _evaluate_on_cluster if on_cluster else _evaluate_log
    summary, written, status = work(options)
    print(summary, end="\n\n")
    for path in written:
        print(outputs.say(path))
    if work is not _evaluate_log:
        for path in evaluations.left_by_a_log(options.out):
            path.unlink()
            print(f"removed {path}, which was of another evaluation")
    return status


def _evaluate_process(options: argparse.Namespace) -> tuple[str, list[Path], int]:
    from cramerl import evaluations
    from cramerl.linear import evaluate, suggest_support

    discount = _discount(options.discount)
    if isinstance(discount, str):
        raise ValueError(f"--discount must be a number for a process, got {discount!r}")
    if len(options.policy or ()) > 1:
        raise ValueError(f"--policy must be given once for a process, got {' and '.join(options.policy)}")
    policy = options.policy[0] if options.policy else "uniform"
    process = evaluations.named_process(options.process, policy, 0.95 if discount is None else discount)
    features = evaluations.named_features(options.features or "tabular", process, bias=options.bias)
    num_atoms = options.atoms or 51
    support = suggest_support(process, num_atoms)
    if options.v_min is not None or options.v_max is not None:
        low = support.v_min if options.v_min is None else options.v_min
        high = support.v_max if options.v_max is None else options.v_max
        support = Support.uniform(low, high, num_atoms)
    normalisation, method = options.normalisation or "before", options.method or "auto"
    found = evaluate(process, features, support, normalisation=normalisation, method=method)
    return found.summary(), evaluations.write_evaluation(found, options.out), 0


def _evaluate_log(options: argparse.Namespace) -> tuple[str, list[Path], int]:
    from cramerl import evaluations
    from cramerl.linear.logs.wording import CVARS, QUANTILES, summary_of_all, wrapped

    quantiles, cvars = options.quantiles or QUANTILES, options.cvar or CVARS
    with errors_name_flags():
        settings = answer_settings(options)
        settings["support"] = _support(options)
        policies = evaluations.named_policies(options.policy)
        show_progress("reading the log ...")
        columns = {name: getattr(options, name) for name in COLUMNS} | {"discount": _discount(options.discount)}
        log = evaluations.read_log(options.data, columns)
        found = evaluations.evaluate_log(log, policies, show_progress, **settings)
    written = evaluations.write_log_evaluation(found, options.out, options.typed, quantiles, cvars)
    text = wrapped(in_flags(summary_of_all(found, quantiles, cvars)), shutil.get_terminal_size((100, 24)).columns)
    return text, written, 3 if options.strict and evaluations.is_refused(found) else 0


def _evaluate_on_cluster(options: argparse.Namespace) -> tuple[str, list[Path], int]:
    from cramerl import evaluations
    from cramerl.linear.transition_sums import DependentColumnsError

    require_library("pyarrow", "ray")
    unknown = [name for name in ("policy", "features", *LOG_ONLY) if name not in (*WITH_RAY, "ray")]
    for flag in given_flags(options, unknown):
        raise ValueError(f"{flag} is not known with --ray, and would be ignored: leave one of the two out")
    discount = _discount(options.discount)
    if isinstance(discount, str):
        raise ValueError(f"--discount must be a number with --ray, got {discount!r}")
    if not options.state or not options.next_state:
        raise ValueError("--ray needs --state and --next-state, the columns of the features before and after")
    columns = (options.state, options.next_state, options.reward or "reward", options.terminated)
    layout = evaluations.cluster_layout(options.data, *columns)
    fit: dict[str, Any] = {"support": _support(options), "num_atoms": options.atoms or 51}
    fit["discount"] = 0.95 if discount is None else discount
    try:
        found = evaluations.evaluate_on_cluster(options.data, layout, options.ray, show_progress, **fit)
    except DependentColumnsError as error:
        raise ValueError(
            f"--state must name columns that are linearly independent of each other and of the constant feature, got "
            f"{options.state}"
        ) from error
    written = evaluations.write_cluster_evaluation(found, options.out)
    return evaluations.cluster_summary(found), written, 0


def _support(options: argparse.Namespace) -> Support | None:
    if (options.v_min is None) != (options.v_max is None):
        raise ValueError("--v-min and --v-max must be given together with --data")
    return None if options.v_min is None else Support.uniform(options.v_min, options.v_max, options.atoms or 51)


def _discount(text: str | None) -> float | str | None:
    """A number, or the name of a column."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text
