"""Check the wheel as a user gets it: install it into an empty environment, import it, add each extra and import that.

    python tests/check_wheel.py dist/cramerl-*.whl FOLDER

FOLDER is a new environment. The base install must import and verify the paper's claims without any extra; a command
that needs one must name it. Exit status 1 at the first check that fails.
"""

import subprocess
import sys
import venv
from pathlib import Path

CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"
# What each extra is for, in the order of installation. wandb and trackio are interfaces only, torch is the user's own.
EXTRAS = {
    "plot": "import cramerl.plots, cramerl.reports.build",
    "gym": "import gymnasium, cramerl.evaluations; cramerl.evaluations.named_process('FrozenLake-v1', 'uniform', 0.9)",
    "data": "import pyarrow.parquet, minari, cramerl.linear",
    "optuna": "import optuna, cramerl.sweep.search",
    "ray": "import ray, fsspec, cramerl.sweep.ray",
    "hub": "import huggingface_hub, cramerl.runs.hub",
    "deep": "import cramerl; cramerl.train, cramerl.load_agent; import cramerl.deep.host_loop",
    "watch": "import av, PIL, cramerl.watching.page, cramerl.watching.video",
}


def run(*command: object, succeed: bool = True) -> str:
    """Run a command outside the repository, so that only the installed package is seen."""
    print("$", *command, flush=True)
    folder = Path(sys.argv[2]).resolve()
    result = subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, text=True, check=False)
    if succeed == bool(result.returncode):
        sys.exit(f"status {result.returncode}\n{result.stdout}\n{result.stderr}")
    return result.stdout + result.stderr


def main() -> None:
    """Install, import, repeat."""
    wheel, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    venv.create(folder, with_pip=True, clear=True)
    python, command = folder.resolve() / "bin" / "python", folder.resolve() / "bin" / "cramerl"
    install = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", CONSTRAINTS)
    run(*install, wheel)
    run(python, "-c", "import cramerl, cramerl.linear, cramerl.claims; cramerl.Support.uniform(-1, 1, 3)")
    games = run(python, "-c", "from cramerl.runs.names import GAMES, SHIPPED; print(*(SHIPPED / one for one in GAMES))")
    files = [file for game in games.split() for file in Path(game).glob("*/*") if file.stat().st_size > 1000]
    if len(files) != 5 * 7 * 3:
        sys.exit(f"the wheel must have three files of each of 35 agents, it has {len(files)}")
    run(command, "--help")
    run(command, "verify")
    missing = run(command, "train", "s51", "Breakout-MinAtar", succeed=False)
    if "pip install 'cramerl[deep]'" not in missing:
        sys.exit(f"a missing extra was not named: {missing}")
    for extra, check in EXTRAS.items():
        run(*install, f"{wheel}[{extra}]")
        run(python, "-c", check)
    run(command, "evaluate", "FrozenLake-v1", "--out", "evaluation")
    run(command, "train", "s51", "CartPole-v1", "--preset", "smoke", "--steps", "300", "--out", "run")
    run(command, "watch", "run", "--max-steps", "3", "--out", "watch.html")
    run(command, "watch", "breakout", "--out", "breakout.html")
    run(command, "play", "freeway/u51", "--episodes", "1", "--max-steps", "20")
    run(command, "report", "run", "--out", "report")


if __name__ == "__main__":
    main()
