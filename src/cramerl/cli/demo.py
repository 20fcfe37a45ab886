"""`cramerl demo`: what the package does, in a few seconds."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from cramerl import _files
from cramerl._extras import require_library
from cramerl.cli.flags import integer_from, make_folder, require_deep_libraries
from cramerl.cli.report import write_demo_report


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    parser.description = (
        "Back up a signed prediction, recompute the condition numbers of Lemma 1, learn a distribution by gradient\n"
        "descent on three losses, and evaluate a small process. Prints tables; writes numbers and pictures."
    )
    add = parser.add_argument
    add("--out", type=Path, default=Path("out/demo"), help="folder to write to (default: %(default)s)")
    add("--atoms", type=integer_from(3), default=51, metavar="K", help="atoms (default: %(default)s)")
    add(
        "--steps",
        type=integer_from(1),
        default=5000,
        metavar="N",
        help="gradient steps per loss (default: %(default)s)",
    )
    add(
        "--train-steps",
        type=integer_from(0),
        default=0,
        metavar="N",
        help="also train s51, u51, c51 and dqn on MinAtar Breakout for N steps each and draw their curves; 150000 "
        "takes a few minutes on two cores, and a second call continues a stopped one (default: %(default)s)",
    )


def _format_error(error: float) -> str:
    return f"{error:.1e}" if error > 1e-14 else "< 1e-14"


def run(options: argparse.Namespace) -> int:
    """Run the demonstration."""
    from cramerl import demo, evaluations

    require_library("matplotlib")
    if options.train_steps:
        require_deep_libraries()
    make_folder(options.out)
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
        print(f"  {descent.name:<36} condition {descent.condition:>8.1f}   left {_format_error(descent.error[-1])}")
    print("\nReturn distributions of a queue (number waiting, 6 Fourier features)")
    print(queue.summary())
    print()
    for path in written:
        print(f"wrote {path}")
    return _demo_agents(options) if options.train_steps else 0


def _demo_agents(options: argparse.Namespace) -> int:
    from cramerl import demo_agents
    from cramerl.runs.progress import progress_display

    curves = []
    print(f"\nFour agents learn MinAtar Breakout, {options.train_steps:,} steps each; exploration ends after a third")
    for agent in demo_agents.AGENTS:
        with progress_display(sys.stderr) as on_progress:
            run = demo_agents.train_agent(agent, options.train_steps, options.out / "runs", on_progress)
        if not run.finished:
            print(f"stopped at step {run.step:,} of {agent}; the same command goes on from there")
            return 130
        curves.append(demo_agents.curve(run))
        print(f"  {agent:<5} mean return in the last fifth {curves[-1].score:6.2f}   {run.folder}", flush=True)
    written = [
        _files.write_json(options.out / "curves.json", demo_agents.summary(curves)),
        demo_agents.draw(curves, options.out / "curves.png"),
    ]
    for path in written:
        print(f"wrote {path}")
    page = write_demo_report(options.out)
    best = max(curves, key=lambda curve: curve.score)
    print(f"to let one play: cramerl play {options.out / 'runs' / best.agent}")
    pair = " ".join(str(options.out / "runs" / agent) for agent in ("s51", "c51"))
    print(f"to see what two of them believe: cramerl watch {pair} --highlight compensation")
    print(f"to look at all of it: open {page}")
    return 0
