"""The command line: parse, call, print. Heavy imports wait until a command needs them."""

from __future__ import annotations

import argparse
import difflib
import io
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from cramerl import __version__
from cramerl.cli_agents import (
    add_agent_commands,
    integer_from,
    require_deep_libraries,
    require_library,
    show_progress,
)
from cramerl.cli_report import add_report_command, write_demo_report
from cramerl.cli_sweep import add_sweep_command
from cramerl.cli_watch import add_watch_command

EXAMPLES = """\
examples:
  cramerl demo                             what it does, in a few seconds: tables and pictures
  cramerl verify                           every claim of the paper, recomputed
  cramerl evaluate FrozenLake-v1           return distributions of a uniform policy, with a certificate
  cramerl evaluate queue --features fourier:5 --discount 0.99
  cramerl evaluate --data log.parquet --state x,y --next-state x2,y2 --terminated done
  cramerl train s51 Breakout-MinAtar --steps 1e6 --seed 0
  cramerl sweep runs/all --agents s51,u51 --envs CartPole-v1 --seeds 0-4
  cramerl report runs                      learning curves, tables and intervals of what was trained
  cramerl play runs/RUN                    scores of a trained agent; also: resume, export
  cramerl watch runs/RUN                   what it believes while it plays, as a page to scrub

exit status: 0 done, 1 a claim did not come out as it should or a loss was not finite, 2 bad input (a sentence says
what is allowed), 130 stopped by Ctrl-C
"""

EVALUATE_EXAMPLES = """\
examples:
  cramerl evaluate FrozenLake-v1                              a uniform policy on a tabular environment of Gymnasium
  cramerl evaluate gridworld --policy actions.npy             a policy of yours: actions, or probabilities of them
  cramerl evaluate queue --features fourier:5 --discount 0.99 fewer features than states
  cramerl evaluate --data log.parquet --state x,y --next-state x2,y2 --terminated done
  cramerl evaluate --data 'logs/*.parquet' --state x --next-state x2 --ray

cramerl watch OUT shows the laws state by state, cramerl report OUT puts them into a report.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the ``cramerl`` command; returns its exit status."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - as long as the process lives
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without é still gets its table
    ended: list[int] = []

    def end(number: int, _: Any) -> None:
        ended.append(128 + number)
        sys.exit(ended[0])  # through the clean-up, not past it

    signal.signal(signal.SIGTERM, end)
    options = _parse(arguments)
    try:
        status = options.run(options)
        sys.stdout.flush()
        return status
    except SystemExit:
        if ended:  # whatever a library made of it on the way
            return ended[0]
        raise
    except BrokenPipeError:
        # Whoever read our output has seen enough; keep Python from complaining about it on the way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        print("\ncramerl: stopped; nothing was left half-written", file=sys.stderr)
        return 130
    except (OSError, ValueError) as error:
        notes = [note for note in getattr(error, "__notes__", []) if "JAX has removed" not in note]
        print(" ".join([f"cramerl: {error}", *notes]), file=sys.stderr)
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "memory" not in str(error).lower():
            raise
        print("cramerl: there is not enough memory for this; make what is asked for smaller", file=sys.stderr)
    return 2


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = _parser()
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        near = difflib.get_close_matches(unknown[0].partition("=")[0], getattr(options, "flags", []), n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    return options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cramerl",
        description="Distributional reinforcement learning built on the Cramér distance.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"cramerl {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_demo(commands)
    _add_verify(commands)
    _add_evaluate(commands)
    add_agent_commands(commands)
    add_sweep_command(commands)
    add_report_command(commands)
    add_watch_command(commands)
    return parser


def _add_demo(commands: Any) -> None:
    demo = commands.add_parser(
        "demo",
        help="what it does, in a few seconds (with --train-steps, agents too)",
        description="Back up a signed prediction, recompute the condition numbers of Lemma 1, learn a distribution by "
        "gradient descent on three losses, and evaluate a small process. Prints tables; writes numbers and pictures.",
    )
    demo.add_argument("--out", type=Path, default=Path("out/demo"), help="folder to write to (default: %(default)s)")
    demo.add_argument("--atoms", type=integer_from(3), default=51, metavar="K", help="atoms (default: %(default)s)")
    demo.add_argument(
        "--steps",
        type=integer_from(1),
        default=5000,
        metavar="N",
        help="gradient steps per loss (default: %(default)s)",
    )
    demo.add_argument(
        "--train-steps",
        type=integer_from(0),
        default=0,
        metavar="N",
        help="also train s51, u51, c51 and dqn on MinAtar Breakout N steps each and draw their curves; 150000 takes "
        "a few minutes on two cores, and goes on where it was stopped (default: %(default)s)",
    )
    demo.set_defaults(run=_demo)


def _add_verify(commands: Any) -> None:
    verify = commands.add_parser(
        "verify",
        help="every claim of the paper, recomputed",
        description="Recompute every numbered statement of the paper with this package's own code: the claim, the "
        "figure, and whether it holds, holds with a correction, or is false (with a counterexample). Exit status 1 if "
        "a figure is not what it should be.",
    )
    for kind, what in (
        ("json", "the figures as JSON"),
        ("html", "a page to read in a browser"),
        ("markdown", "Markdown"),
    ):
        words = f"also write {what}; without FILE, print it in place of the table"
        verify.add_argument(f"--{kind}", nargs="?", const="-", metavar="FILE", help=words)
    verify.set_defaults(run=_verify)


def _add_evaluate(commands: Any) -> None:
    evaluate = commands.add_parser(
        "evaluate",
        help="return distributions of a policy, with a certificate",
        description="The law of the return of every state, as linear functions of features: from a process that is "
        "known (an example or a tabular Gymnasium environment), or from a log of transitions. Prints a table and what "
        "is guaranteed; writes evaluation.json and evaluation.png.",
        epilog=EVALUATE_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = evaluate.add_argument
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
    evaluate.set_defaults(run=_evaluate)


def _share(error: float) -> str:
    return f"{error:.1e}" if error > 1e-14 else "< 1e-14"


def _demo(options: argparse.Namespace) -> int:
    from cramerl import _files
    from cramerl.study import demo, evaluations

    require_library("matplotlib", "plot")
    if options.train_steps:
        require_deep_libraries()
    _make_folder(options.out)
    result = demo.run(options.atoms, options.steps)
    queue = demo.evaluate_queue()
    written = [
        _files.write_json(options.out / "demo.json", demo.summary(result)),
        demo.draw(result, options.out / "demo.png"),
        *evaluations.write_evaluation(queue, options.out),
    ]
    print("Conditioning of the Cramér loss on unit-spaced atoms (Lemma 1 of the paper)")
    print(f"{'atoms':>7}{'raw distance':>15}{'with penalty':>15}   best penalties")
    for row in result.conditioning:
        print(f"{row.num_atoms:>7}{row.raw:>15.2f}{row.best:>15.2f}   [{row.penalty_low:.3f}, {row.penalty_high:.2f}]")
    print(f"\nGradient descent, {options.atoms} atoms: distance left after {options.steps} steps")
    for descent in result.descents:
        print(f"  {descent.name:<36} condition {descent.condition:>8.1f}   left {_share(descent.error[-1])}")
    print("\nReturn distributions of a queue (number waiting, 6 Fourier features)")
    print(queue.summary())
    print()
    for path in written:
        print(f"wrote {path}")
    return _demo_agents(options) if options.train_steps else 0


def _demo_agents(options: argparse.Namespace) -> int:
    from cramerl import _files
    from cramerl.study import demo_agents
    from cramerl.study.progress import progress_display

    curves = []
    print(f"\nFour agents learn MinAtar Breakout, {options.train_steps:,} steps each; exploration ends after a third")
    for agent in demo_agents.AGENTS:
        with progress_display(sys.stderr) as report:
            run = demo_agents.train_agent(agent, options.train_steps, options.out / "runs", report)
        if not run.finished:
            print(f"stopped at step {run.step:,} of {agent}; the same command goes on from there")
            return 130
        curves.append(demo_agents.curve(run))
        print(f"  {agent:<5} mean return in the last tenth {curves[-1].last:6.2f}   {run.folder}", flush=True)
    written = [
        _files.write_json(options.out / "curves.json", demo_agents.summary(curves)),
        demo_agents.draw(curves, options.out / "curves.png"),
    ]
    for path in written:
        print(f"wrote {path}")
    page = write_demo_report(options.out)
    best = max(curves, key=lambda curve: curve.last)
    print(f"to let one play: cramerl play {options.out / 'runs' / best.agent}")
    pair = " ".join(str(options.out / "runs" / agent) for agent in ("s51", "c51"))
    print(f"to see what two of them believe: cramerl watch {pair} --find compensation")
    print(f"to look at all of it: open {page}")
    return 0


def _verify(options: argparse.Namespace) -> int:
    from cramerl import _files
    from cramerl.linear import claims

    places = [Path(place) for place in (options.json, options.html, options.markdown) if place not in (None, "-")]
    if len({place.resolve() for place in places}) < len(places):
        raise ValueError(f"--json, --html and --markdown must be files of their own, got {places[0]} and {places[-1]}")
    for place in places:
        _files.require_writable(place)
    show_progress("recomputing the paper's claims ...")
    found = claims.verify()
    show_progress("")
    wanted = [
        (options.json, json.dumps(claims.to_json(found), indent=2)),
        (options.html, claims.to_html(found)),
        (options.markdown, claims.to_markdown(found)),
    ]
    printed = [text for place, text in wanted if place == "-"]
    written = [_files.write_text(Path(place), text) for place, text in wanted if place not in (None, "-")]
    for text in printed or [claims.format_table(found, shutil.get_terminal_size((100, 24)).columns)]:
        print(text)
    for path in written:
        print(f"wrote {path}", file=sys.stderr if printed else sys.stdout)
    return 0 if all(claim.passed for claim in found) else 1


def _evaluate(options: argparse.Namespace) -> int:
    require_library("matplotlib", "plot")
    if (options.process is None) == (options.data is None):
        raise ValueError(
            "give either a process to evaluate or --data FILE (or a folder of them); see cramerl evaluate --help"
        )
    for_logs = ("state", "next_state", "reward", "terminated", "no_bias", "ray")
    for name in ("policy", "features", "bias") if options.data else for_logs:
        if getattr(options, name) not in (None, False):
            other = "a process" if options.data else "--data"
            raise ValueError(f"--{name.replace('_', '-')} belongs to {other} and would be ignored here: leave it out")
    with _folder_for_results(options.out):
        return _evaluate_data(options) if options.data else _evaluate_process(options)


def _make_folder(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out must be a folder, {out} is a file")
    out.mkdir(parents=True, exist_ok=True)


@contextmanager
def _folder_for_results(path: Path) -> Iterator[None]:
    """Make a folder before the work whose results would be lost without it; if nothing comes of it, it goes again."""
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    _make_folder(path)
    try:
        yield
    except BaseException:
        for folder in made:
            with suppress(OSError):  # something is in it
                folder.rmdir()
        raise


def _evaluate_process(options: argparse.Namespace) -> int:
    from cramerl.linear import evaluate, suggest_support
    from cramerl.study import evaluations
    from cramerl.supports import Support

    if options.process not in evaluations.EXAMPLES:
        require_library("gymnasium", "gym")
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
    from cramerl.study import evaluations
    from cramerl.supports import Support

    require_library("pyarrow", "data")
    if options.ray is not None:
        require_library("ray", "ray")
    if not options.state or not options.next_state:
        raise ValueError("--data needs --state and --next-state, the columns of the features before and after")
    if (options.v_min is None) != (options.v_max is None):
        raise ValueError("--v-min and --v-max must be given together with --data")
    support = None if options.v_min is None else Support.uniform(options.v_min, options.v_max, options.atoms)
    columns = evaluations.log_columns(
        options.data, options.state, options.next_state, options.reward or "reward", options.terminated
    )
    settings = {"num_atoms": options.atoms, "normalisation": options.normalisation, "method": options.method}
    shown = {"bias": not options.no_bias, "report": show_progress, "cluster": options.ray}
    found = evaluations.evaluate_log(options.data, columns, support, options.discount, **shown, **settings)
    written = evaluations.write_log_evaluation(found, options.out)
    print(evaluations.log_summary(found))
    print()
    for path in written:
        print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
