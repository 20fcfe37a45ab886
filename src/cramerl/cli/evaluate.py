"""`cramerl evaluate`: return distributions of a policy, from a process or a log."""

from __future__ import annotations

import argparse
from pathlib import Path

from cramerl._extras import require_library
from cramerl.cli.flags import Outputs, add_overwrite_flag, given_flags, integer_from, show_progress
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


# Settings that concern only a process, or only a log; the parser has no defaults for them, to see which were given.
PROCESS_ONLY = ("policy", "features", "bias")
LOG_ONLY = ("state", "next_state", "reward", "terminated", "no_bias", "ray")


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
    add(
        "--data",
        metavar="PATH",
        help="transitions instead of a process: a Parquet file, a folder, 'a*.parquet' or a URL",
    )
    add("--discount", type=float, default=0.95, help="in [0, 1) (default: %(default)s)")
    add("--atoms", type=integer_from(2), default=51, metavar="K", help="atoms of the support (default: %(default)s)")
    add("--v-min", type=float, help="smallest return of the support (default: from the process or the data)")
    add("--v-max", type=float, help="largest return of the support")
    add(
        "--normalisation",
        choices=("before", "after", "affine"),
        default="before",
        help="how the mass is kept at one (default: %(default)s)",
    )
    add(
        "--method",
        choices=("auto", "direct", "krylov", "iteration"),
        default="auto",
        help="how the equations are solved (default: %(default)s)",
    )
    add("--out", type=Path, default=Path("out/evaluate"), help="folder to write to (default: %(default)s)")
    add_overwrite_flag(parser)
    add = parser.add_argument_group("of a process").add_argument
    add("--policy", help="'uniform' (the default), or a .npy or .csv file of probabilities (S, A) or actions (S,)")
    add(
        "--features",
        help="tabular (the default: one for each state that is visited), aggregation:N, polynomial:N, fourier:N, rbf:N "
        "or random:N, functions of the state's number",
    )
    add("--bias", action="store_true", help="add a constant feature")
    add = parser.add_argument_group("of a log (--data)").add_argument
    add("--state", metavar="COLUMNS", help="the features of the state, separated by commas; or one column of lists")
    add("--next-state", metavar="COLUMNS", help="the features of the next state")
    add("--reward", metavar="COLUMN", help="the reward (default: reward)")
    add("--terminated", metavar="COLUMN", help="whether the return ended (default: terminated, if the log has it)")
    add("--no-bias", action="store_true", help="do not add a constant feature")
    add(
        "--ray",
        nargs="?",
        const="",
        metavar="ADDRESS",
        help="fit on a Ray cluster (host:port of its head, or auto; without ADDRESS the one that RAY_ADDRESS names, "
        "else all cores of this machine). Every machine must be able to read the files. The result is that of one "
        "machine up to rounding, even if workers or machines are lost",
    )


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

    outputs = Outputs(evaluations.MADE_BY, overwrite=options.overwrite)
    outputs.check_folder(options.out, evaluations.FILES)
    summary, written = _evaluate_log(options) if options.data else _evaluate_process(options)
    print(summary, end="\n\n")
    for path in written:
        print(outputs.say(path))
    return 0


def _evaluate_process(options: argparse.Namespace) -> tuple[str, list[Path]]:
    from cramerl import evaluations
    from cramerl.linear import evaluate, suggest_support

    process = evaluations.named_process(options.process, options.policy or "uniform", options.discount)
    features = evaluations.named_features(options.features or "tabular", process, bias=options.bias)
    support = suggest_support(process, options.atoms)
    if options.v_min is not None or options.v_max is not None:
        low = support.v_min if options.v_min is None else options.v_min
        high = support.v_max if options.v_max is None else options.v_max
        support = Support.uniform(low, high, options.atoms)
    found = evaluate(process, features, support, normalisation=options.normalisation, method=options.method)
    written = evaluations.write_evaluation(found, options.out)
    return found.summary(), written


def _evaluate_log(options: argparse.Namespace) -> tuple[str, list[Path]]:
    from cramerl import evaluations
    from cramerl.linear.transition_sums import DependentColumnsError

    require_library("pyarrow", *([] if options.ray is None else ["ray"]))
    if not options.state or not options.next_state:
        raise ValueError("--data needs --state and --next-state, the columns of the features before and after")
    if (options.v_min is None) != (options.v_max is None):
        raise ValueError("--v-min and --v-max must be given together with --data")
    support = None if options.v_min is None else Support.uniform(options.v_min, options.v_max, options.atoms)
    columns = (options.state, options.next_state, options.reward or "reward", options.terminated)
    layout = evaluations.log_layout(options.data, *columns, bias=not options.no_bias)
    try:
        found = evaluations.evaluate_log(
            options.data,
            layout,
            support,
            options.discount,
            on_progress=show_progress,
            cluster=options.ray,
            num_atoms=options.atoms,
            normalisation=options.normalisation,
            method=options.method,
        )
    except DependentColumnsError as error:
        constant = "" if options.no_bias else " and of the constant feature, which --no-bias leaves out"
        raise ValueError(
            f"--state must name columns that are linearly independent of each other{constant}, got {options.state}"
        ) from error
    written = evaluations.write_log_evaluation(found, options.out)
    return evaluations.log_summary(found), written
