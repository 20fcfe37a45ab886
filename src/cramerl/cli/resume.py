"""`cramerl resume`: continue a run from its last checkpoint."""

from __future__ import annotations

import argparse
from pathlib import Path

from cramerl.cli.flags import add_trust_flag, require_deep_libraries
from cramerl.cli.train import describe_subject, first_words, train_with_progress
from cramerl.runs.folder import load_config
from cramerl.runs.loggers import require_loggers
from cramerl.runs.parsing import parse_setting


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    parser.description = (
        "Continue a run from its last good checkpoint. On the same CPU machine the result is that of a run "
        "that was never interrupted."
    )
    parser.add_argument("folder", type=Path, metavar="RUN", help="folder of a run")
    parser.add_argument("--steps", metavar="N", help="a new total of agent steps, to make the run longer")
    add_trust_flag(parser)


def run(options: argparse.Namespace) -> int:
    """Continue the run."""
    steps = None if options.steps is None else parse_setting("steps", options.steps)
    config = load_config(options.folder)
    require_deep_libraries()
    require_loggers(config)
    with first_words(f"resuming {options.folder}: {describe_subject(config)}") as begun:
        from cramerl.runs.training import resume

        trust = {"trust_modules": options.trust_modules}
        return train_with_progress(
            lambda on_progress: resume(options.folder, steps, on_progress=on_progress, **trust), begun
        )
