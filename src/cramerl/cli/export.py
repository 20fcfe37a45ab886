"""`cramerl export`: write a trained agent into a folder that can be shared."""

from __future__ import annotations

import argparse
from pathlib import Path

from cramerl.cli.flags import AGENT_HELP, add_lane_flag, one_agent, require_deep_libraries
from cramerl.runs.hub import parse_push


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    parser.description = (
        "Write an agent's weights (safetensors), settings and model card. `cramerl play`, `cramerl watch` and "
        "`cramerl.load_agent` read such a folder, and with --push also the repository."
    )
    parser.add_argument("folder", metavar="AGENT", help=AGENT_HELP)
    add_lane_flag(parser)
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="a new or empty folder")
    parser.add_argument(
        "--half",
        action="store_true",
        help="write 16-bit weights: half the size, predictions change in the fourth digit",
    )
    parser.add_argument(
        "--push",
        metavar="USER/NAME",
        help="also upload the files to this repository of the Hugging Face Hub, which is made if there is none",
    )


def run(options: argparse.Namespace) -> int:
    """Write the export."""
    require_deep_libraries()
    from cramerl.runs.agents import export_agent

    folder, how = one_agent(options.folder), {"lane": options.lane, "half": options.half, "push": options.push}
    for path in export_agent(folder, options.out, **how):
        print(f"wrote {path}")
    if options.push:
        place = parse_push(options.push)
        print(f"uploaded them to {place}; anyone who may read it can type: cramerl watch {place}")
    return 0
