"""`cramerl evaluate`: return distributions of a policy, from a process or a log."""

from __future__ import annotations

import argparse
from pathlib import Path

from cramerl._extras import require_library
from cramerl.cli.flags import folder_for_results, integer_from, show_progress
from cramerl.supports import Support

EXAMPLES = """\
examples:
  cramerl evaluate FrozenLake-v1                              a uniform policy on a tabular environment of Gymnasium
  cramerl evaluate gridworld --policy actions.npy             a policy of yours: actions, or probabilities of them
  cramerl evaluate queue --features fourier:5 --discount 0.99 fewer features than states
  cramerl evaluate --data log.parquet --state x,y --next-state x2,y2 --terminated done
  cramerl evaluate --data 'logs/*.parquet' --state x --next-state x2 --ray

cramerl watch OUT shows the distributions state by state, cramerl report OUT puts them into a report.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    parser.description = (
        "The distribution of the return of every state, as linear functions of features: from a process that is known\n"
        "(an example or a tabular Gymnasium environment), or from a log of transitions. Prints a table and what is\n"
        "guaranteed; writes evaluation.json and evaluation.png."
    )
    parser.epilog = EXAMPLES
    add = parser.add_argument
    add("process", nargs="?", help="random-walk, ring, gridworld, queue, or a Gymnasium id such as FrozenLake-v1")
    add("--policy", help="'uniform' (the default), or a .npy or .csv file of probabilities (S, A) or actions (S,)")
    add("--discount", type=float, default=0.95, help="in [0, 1) (default: %(default)s)")
    add(
        "--features",
        help="tabular (the default: one for each state that is visited), aggregation:N, polynomial:N, fourier:N, rbf:N "
        "or random:N, functions of the state's number",
    )
    add("--bias", action="store_true", help="add a constant feature (with --data there is one anyway)")
    add("--atoms", type=integer_from(2), default=51, metavar="K", help="atoms of the support (default: %(default)s)")
    add("--v-min", type=float, help="smallest return of the support (default: from the process or the data)")
    add("--v-max", type=float, help="largest return of the support")
    add("--normalisation", choices=("before", "after", "affine"), default="before", help="how the mass is kept")
    add(
        "--method",
        choices=("auto", "direct", "krylov", "iteration"),
        default="auto",
        help="how the equations are solved",
    )
    add(
        "--data",
        metavar="PATH",
        help="transitions instead of a process: a Parquet file, a folder, 'a*.parquet' or a URL",
    )
    add("--state", metavar="COLUMNS", help="with --data: the state's features, commas between; or one column of lists")
    add("--next-state", metavar="COLUMNS", help="with --data: the same after the transition")
    add("--reward", metavar="COLUMN", help="with --data: the reward (default: reward)")
    add("--terminated", metavar="COLUMN", help="with --data: whether the return ended (default: terminated, if there)")
    add("--no-bias", action="store_true", help="with --data: do not add a constant to the features")
    add(
        "--ray",
        nargs="?",
        const="",
        metavar="ADDRESS",
        help="with --data: read and add up on a Ray cluster (host:port of its head, or auto; without ADDRESS the one "
        "that RAY_ADDRESS names, else all cores of this machine), through the loss of workers and machines; every "
        "machine must see the files. Results are as without, to rounding",
    )
    add("--out", type=Path, default=Path("out/evaluate"), help="folder to write to (default: %(default)s)")


def run(options: argparse.Namespace) -> int:
    """Evaluate a process or a log."""
    require_library("matplotlib")
    if (options.process is None) == (options.data is None):
        raise ValueError(
            "give either a process to evaluate or --data FILE (or a folder of them); see cramerl evaluate --help"
        )
    for_logs = ("state", "next_state", "reward", "terminated", "no_bias", "ray")
    for name in ("policy", "features", "bias") if options.data else for_logs:
        if getattr(options, name) not in (None, False):
            other = "a process" if options.data else "--data"
            raise ValueError(f"--{name.replace('_', '-')} belongs to {other} and would be ignored here: leave it out")
    with folder_for_results(options.out):
        return _evaluate_data(options) if options.data else _evaluate_process(options)


def _evaluate_process(options: argparse.Namespace) -> int:
    from cramerl import evaluations
    from cramerl.linear import evaluate, suggest_support

    if options.process not in evaluations.EXAMPLES:
        require_library("gymnasium")
    process = evaluations.named_process(options.process, options.policy or "uniform", options.discount)
    features = evaluations.named_features(options.features or "tabular", process, bias=options.bias)
    support = suggest_support(process, options.atoms)
    if options.v_min is not None or options.v_max is not None:
        low = support.v_min if options.v_min is None else options.v_min
        high = support.v_max if options.v_max is None else options.v_max
        support = Support.uniform(low, high, options.atoms)
    found = evaluate(process, features, support, normalisation=options.normalisation, method=options.method)
    written = evaluations.write_evaluation(found, options.out)
    print(found.summary())
    print()
    for path in written:
        print(f"wrote {path}")
    return 0


def _evaluate_data(options: argparse.Namespace) -> int:
    from cramerl import evaluations

    require_library("pyarrow")
    if options.ray is not None:
        require_library("ray")
    if not options.state or not options.next_state:
        raise ValueError("--data needs --state and --next-state, the columns of the features before and after")
    if (options.v_min is None) != (options.v_max is None):
        raise ValueError("--v-min and --v-max must be given together with --data")
    support = None if options.v_min is None else Support.uniform(options.v_min, options.v_max, options.atoms)
    columns = evaluations.log_columns(
        options.data, options.state, options.next_state, options.reward or "reward", options.terminated
    )
    settings = {"num_atoms": options.atoms, "normalisation": options.normalisation, "method": options.method}
    shown = {"bias": not options.no_bias, "on_progress": show_progress, "cluster": options.ray}
    found = evaluations.evaluate_log(options.data, columns, support, options.discount, **shown, **settings)
    written = evaluations.write_log_evaluation(found, options.out)
    print(evaluations.log_summary(found))
    print()
    for path in written:
        print(f"wrote {path}")
    return 0
