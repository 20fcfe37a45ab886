"""Command-line settings of runs that train in seconds."""

SMALL = ["--preset", "smoke", "--hidden-units", "8", "--steps", "600"]
TINY = [*SMALL, "--num-atoms", "11"]  # dqn has no atoms
