"""Cost of training agents on this machine, as ratios within one run.

1. MinAtar Breakout, 16 environments, batch 32, one update per four steps, the MinAtar CNN, 51 atoms: agent steps per
   second of our agents and, with --others, of Stable-Baselines3's DQN and sb3-contrib's QR-DQN with the same network
   and settings, each in a separate process. The other libraries are installed into a separate environment
   (--others-env, created if missing). Ours and theirs take turns, and the medians are compared.
2. Atari (Pong, the Nature CNN): agent steps per second, compared with the learner alone on prepared batches, which is
   the bound of the arithmetic; and the fractions of the time spent in the environments, acting, and waiting for the
   learner.

    python benchmarks/deep.py [--quick] [--others] [--others-env FOLDER] [--rounds N]
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
OURS = ("s51", "u51", "c51", "qr", "dqn")
THEIRS = ("dqn", "qrdqn")
OTHERS = ("torch==2.13.0", "stable-baselines3==2.9.2", "sb3-contrib==2.9.2", "minatar==1.0.15", "gymnasium<1.4")


def measure_ours(agent: str, seconds: float) -> dict[str, float]:
    """Steps per second after learning has started, and the seconds that compilation takes before."""
    from cramerl.runs import build
    from cramerl.runs.group import as_group
    from cramerl.runs.presets import preset

    started = time.perf_counter()
    loop = build.make_loop(as_group(preset("minatar", agent, "Breakout-MinAtar", min_replay_steps=1_600)))
    loop.advance(loop.schedule.first_learning_block + 5)
    loop.take_totals()
    compiled = time.perf_counter() - started
    blocks, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        loop.advance(125)
        loop.take_totals()
        blocks += 125
    rate = blocks * loop.schedule.steps_per_block / (time.perf_counter() - began)
    return {"steps_per_second": rate, "compile_seconds": compiled, "gigabytes": gigabytes()}


def measure_atari(agent: str, seconds: float, num_envs: int) -> dict[str, float]:
    """Pong from end to end, then the learner alone."""
    import jax
    import numpy as np

    from cramerl.deep import replay as replays
    from cramerl.runs import build
    from cramerl.runs.group import as_group
    from cramerl.runs.presets import preset

    started = time.perf_counter()
    config = preset("paper", agent, "pong", num_envs=num_envs, min_replay_steps=400, replay_steps=20_000)
    loop: Any = build.make_loop(as_group(config))
    loop.begin_iteration(0)
    loop.advance(loop.schedule.first_learning_block + 2)
    loop.take_totals()
    compiled = time.perf_counter() - started
    loop.seconds = dict.fromkeys(loop.seconds, 0.0)
    loop.time_learner = True
    blocks, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        loop.advance(2)
        blocks += 2
    loop.take_totals()
    total = time.perf_counter() - began
    rate = blocks * loop.schedule.steps_per_block / total
    program, block = loop._program, np.int32(loop.block)
    drawn = program.draw(loop._key, loop.replay, block, np.int32(loop.row))
    drawn = jax.jit(replays.part_of, static_argnums=2)(drawn, 0, program.updates_per_call)
    batches = jax.jit(replays.read_batch)(loop.replay, drawn)
    state, nothing = loop.state, loop._learned
    state, _ = jax.block_until_ready(program.learn(state, batches, nothing, block))  # compiled here
    calls, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds / 2:
        state, _ = program.learn(state, batches, nothing, block)
        jax.block_until_ready(state)
        calls += 1
    alone = calls * loop.schedule.steps_per_block / (time.perf_counter() - began)
    loop.close()
    shares = {f"share_{name}": spent / total for name, spent in loop.seconds.items()}
    figures = {"steps_per_second": rate, "learner_alone": alone, "compile_seconds": compiled, "gigabytes": gigabytes()}
    return figures | shares


def gigabytes() -> float:
    """Peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def in_process(python: str, script: Path, *arguments: str) -> dict[str, float]:
    """A measurement in a separate process, with its own memory and threads."""
    done = subprocess.run([python, str(script), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{script.name} {' '.join(arguments)} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def others_python(folder: Path) -> str:
    """The interpreter of the other libraries' environment, which is created if missing."""
    python = folder / "bin" / "python"
    if not (folder / ".ready").exists():
        print(f"installing {', '.join(OTHERS)} into {folder} ...", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *OTHERS], check=True)
        (folder / ".ready").touch()
    return str(python)


def minatar(options: argparse.Namespace) -> None:
    others = others_python(options.others_env) if options.others else None
    found: dict[str, list[dict[str, float]]] = {}
    for _ in range(options.rounds):
        for agent in OURS:
            figures = in_process(sys.executable, Path(__file__), "--one", agent, "--seconds", str(options.seconds))
            found.setdefault(agent, []).append(figures)
        for agent in THEIRS if others else ():
            figures = in_process(str(others), HERE / "deep_others.py", agent, str(options.seconds))
            found.setdefault(f"SB3 {agent}", []).append(figures)
    print("MinAtar Breakout, 16 environments, batch 32, one update per 4 steps, medians of", options.rounds, "rounds")
    heads = "".join(f"{'/ ' + name:>13}" for name in found if name.startswith("SB3"))
    print(f"{'agent':<12}{'steps/s':>9}{'compile s':>11}{'GB':>7}{heads}")
    middle = {name: statistics.median(x["steps_per_second"] for x in rows) for name, rows in found.items()}
    for name, rows in found.items():
        ratios = "".join(f"{middle[name] / middle[other]:>13.2f}" for other in found if other.startswith("SB3"))
        compiled = statistics.median(x.get("compile_seconds", 0.0) for x in rows)
        memory = max(x["gigabytes"] for x in rows)
        print(f"{name:<12}{middle[name]:>9.0f}{compiled:>11.1f}{memory:>7.2f}{ratios}", flush=True)


def atari(options: argparse.Namespace) -> None:
    print("\nPong, Nature CNN, batch 32, one update per 4 steps")
    print(f"{'agent':<7}{'envs':>5}{'steps/s':>9}{'learner alone':>15}{'ratio':>7}{'compile s':>11}{'GB':>7}   time in")
    for agent, num_envs in (("s51", 8), ("u51", 8), ("c51", 8), ("s51", 1)):
        arguments = ("--one", agent, "--atari", str(num_envs), "--seconds", str(options.seconds))
        x = in_process(sys.executable, Path(__file__), *arguments)
        shares = ", ".join(f"{n} {x['share_' + n]:.0%}" for n in ("environment", "acting", "learning"))
        row = f"{agent:<7}{num_envs:>5}{x['steps_per_second']:>9.0f}{x['learner_alone']:>15.0f}"
        ratio = x["steps_per_second"] / x["learner_alone"]
        print(f"{row}{ratio:>7.2f}{x['compile_seconds']:>11.1f}{x['gigabytes']:>7.2f}   {shares}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two seconds each, one round")
    parser.add_argument("--others", action="store_true", help="measure Stable-Baselines3 and sb3-contrib too")
    parser.add_argument("--others-env", type=Path, default=Path(tempfile.gettempdir()) / "cramerl-others")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--atari", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one = measure_ours if options.atari is None else lambda a, s: measure_atari(a, s, options.atari)
        print(json.dumps(one(options.one, options.seconds)))
        return
    if options.quick:
        options.rounds, options.seconds = 1, 2.0
    minatar(options)
    atari(options)


if __name__ == "__main__":
    main()
