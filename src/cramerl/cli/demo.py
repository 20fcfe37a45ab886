"""`cramerl demo`: show what the package does, in a few seconds, or in minutes with agents that learn."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cramerl import _files
from cramerl._extras import require_library
from cramerl.cli.flags import Outputs, add_overwrite_flag, integer_from, require_deep_libraries
from cramerl.cli.report import write_demo_report
from cramerl.runs.folder import CONFIG, RunFolder
from cramerl.runs.presets import preset
from cramerl.runs.progress import progress_display
from cramerl.runs.scores import tail_score

if TYPE_CHECKING:
    from cramerl.runs.trainer import OnProgress, Run

# The best rates on this game (docs/study.md); the preset's are a compromise over four games. One support for all,
# so that their charts can be compared, and S51 as the paper has it.
_SUPPORT = {"v_min": -10.0, "v_max": 10.0}
_AGENTS = {
    "s51": {"learning_rate": 1e-4, "next_distribution": "signed", **_SUPPORT},
    "u51": {"learning_rate": 3e-4, **_SUPPORT},
    "c51": {"learning_rate": 3e-4, **_SUPPORT},
    "dqn": {"learning_rate": 1e-3},
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    parser.description = (
        "Back up a signed prediction, recompute the condition numbers of Lemma 1, learn a distribution by gradient\n"
        "descent on three losses, and evaluate a small process. Prints tables; writes numbers and pictures."
    )
    add = parser.add_argument
    add("--out", type=Path, default=Path("out/demo"), help="folder to write to (default: %(default)s)")
    add_overwrite_flag(parser)
    add("--atoms", type=integer_from(3), default=51, metavar="K", help="atoms (default: %(default)s)")
    text = "gradient steps per loss (default: %(default)s)"
    add("--steps", type=integer_from(1), default=5000, metavar="N", help=text)
    text = (
        "also train s51, u51, c51 and dqn on MinAtar Breakout for N steps each, and write a report with their curves; "
        "150000 takes a few minutes on two cores, and a stopped demo can be continued (default: %(default)s)"
    )
    add("--train-steps", type=integer_from(0), default=0, metavar="N", help=text)


def run(options: argparse.Namespace) -> int:
    """Run the demonstration."""
    from cramerl import demo, evaluations

    require_library("matplotlib")
    if options.train_steps:
        require_deep_libraries()
    outputs = Outputs(demo.MADE_BY, overwrite=options.overwrite)
    outputs.check_folder(options.out, ("demo.json", "demo.png"))
    outputs.check_folder(options.out, evaluations.FILES, evaluations.MADE_BY)
    options.out.mkdir(parents=True, exist_ok=True)
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
        left = f"{descent.error[-1]:.1e}" if descent.error[-1] > 1e-14 else "< 1e-14"
        print(f"  {descent.name:<36} condition {descent.condition:>8.1f}   left {left}")
    print("\nReturn distributions of a queue (number waiting, 6 Fourier features)")
    print(queue.summary())
    print()
    for path in written:
        print(outputs.say(path))
    return _train_agents(options) if options.train_steps else 0


def _train_agents(options: argparse.Namespace) -> int:
    """Train four agents, or continue where they stopped; write a report with their curves."""
    runs, scores = {}, {}
    print(f"\nFour agents learn MinAtar Breakout, {options.train_steps:,} steps each; exploration ends after a third")
    for agent in _AGENTS:
        with progress_display(sys.stderr) as on_progress:
            runs[agent] = run = _train_agent(agent, options.train_steps, options.out / "runs" / agent, on_progress)
        if not run.finished:
            print(f"stopped at step {run.step:,} of {agent}; the same command continues from there")
            return 130
        scores[agent] = score = tail_score(run.rows)
        print(f"  {agent:<5} mean return in the last fifth {score.mean:6.2f}   {run.folder}", flush=True)
    page = write_demo_report(options.out)
    best = max(runs, key=lambda agent: scores[agent].mean if scores[agent].episodes else 0.0)
    print(f"to let one play: cramerl play {runs[best].folder}")
    print(f"to see what two predict: cramerl watch {runs['s51'].folder} {runs['c51'].folder} --highlight compensation")
    print(f"to see all of it: open {page}")
    return 0


def _train_agent(agent: str, steps: int, folder: Path, on_progress: OnProgress) -> Run:
    from cramerl.runs.training import resume, train

    # The demonstration is shorter than MinAtar's usual million steps, so exploration ends earlier too.
    changes = {"steps": steps, "exploration_decay_steps": max(1, steps // 3), **_AGENTS[agent]}
    config = preset("minatar", agent, "Breakout-MinAtar", **changes)
    if not (folder / CONFIG).exists():
        return train(config, out=folder, on_progress=on_progress)
    if RunFolder.open(folder).group.first != config:
        raise ValueError(f"{folder} holds a run with other settings: remove it, or choose another --out")
    return resume(folder, on_progress=on_progress)
