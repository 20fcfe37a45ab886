"""`cramerl export`: write a trained agent into a folder that can be shared."""

from __future__ import annotations

import argparse
from pathlib import Path

from cramerl.cli.flags import add_lane_flag, require_deep_libraries


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    parser.description = (
        "Write an agent's weights (safetensors), settings and model card. `cramerl play` and `cramerl.load_agent` read "
        "such a folder."
    )
    parser.add_argument("folder", type=Path, metavar="RUN", help="folder of a run")
    add_lane_flag(parser)
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="a new or empty folder")
    parser.add_argument(
        "--half",
        action="store_true",
        help="write 16-bit weights: half the size, predictions change in the fourth digit",
    )


def run(options: argparse.Namespace) -> int:
    """Write the export."""
    require_deep_libraries()
    from cramerl.runs.agents import export_agent

    for path in export_agent(options.folder, options.out, lane=options.lane, half=options.half):
        print(f"wrote {path}")
    return 0
