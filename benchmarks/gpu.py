"""Speed on one accelerator, as figures and as ratios within one run.

1. The learner alone, batch 32, Nature CNN: microseconds per update, compared with the plain form of the same update
   (XLA's convolutions, no graphs), for both paddings and each agent.
2. Atari with the paper's settings from end to end, for each game: frames per second, compared with the emulator alone.
3. MinAtar: steps per second over all seeds, by the number of runs in one program (--lanes), compared with the first.

    python benchmarks/gpu.py [--quick] [--part learner] [--part atari] [--part minatar] [--games pong,breakout]
                             [--envs 128] [--lanes 1,12,48,128] [--json FILE]

Each game takes a minute, most of it to create the environments.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cramerl.deep.envs.base import EnvSpec
from cramerl.deep.host_program import compiler_options
from cramerl.deep.learner import Learner
from cramerl.deep.networks import make_network
from cramerl.deep.replay import Batch
from cramerl.runs import build
from cramerl.runs.folder import versions
from cramerl.runs.group import RunGroup, as_group
from cramerl.runs.presets import preset

GAMES = "pong,breakout,asterix,seaquest,space_invaders"
PONG = EnvSpec("pong", "atari", 6, (84, 84), "uint8", 4, 255.0, 4)
UPDATES, SIZE = 32, 32


def batches() -> Batch:
    """A block of 128 environments: 32 updates of 32 transitions."""
    rng = np.random.default_rng(0)
    frames = jnp.asarray(rng.integers(0, 256, (UPDATES, SIZE, 84, 84, 4), dtype=np.uint8))
    actions = jnp.asarray(rng.integers(0, 6, (UPDATES, SIZE)), dtype=jnp.int32)
    rewards, discounts = jnp.zeros((UPDATES, SIZE), jnp.float32), jnp.full((UPDATES, SIZE), 0.99, jnp.float32)
    return Batch(frames, actions, rewards, discounts, frames[::-1], jnp.ones((UPDATES, SIZE), jnp.float32))


def microseconds(learner: Learner, data: Batch, options: dict[str, Any] | None, seconds: float) -> float:
    """Time of an update after compilation."""
    learn = jax.jit(partial(learner.learn, unroll=False), compiler_options=options)
    state = jax.block_until_ready(jax.jit(learner.init)(jax.random.key(0)))
    for _ in range(3):
        state = jax.block_until_ready(learn(state, data)[0])
    calls, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        for _ in range(10):
            state = learn(state, data)[0]
        jax.block_until_ready(state)
        calls += 10
    return 1e6 * (time.perf_counter() - began) / calls / UPDATES


def measure_learner(agent: str, network: str, seconds: float) -> dict[str, float]:
    """Our update, and the plain form of it."""
    ours = build.make_learner(preset("paper", agent, "pong", network=network), PONG)
    plain = dataclasses.replace(
        ours,
        network=make_network(
            network, PONG.observation_shape, 6, ours.head.num_outputs, frame_scale=255.0, convolutions="xla"
        ),
    )
    data = batches()
    return {
        "microseconds": microseconds(ours, data, compiler_options(), seconds),
        "plain_microseconds": microseconds(plain, data, None, seconds),
    }


def measure_atari(agent: str, game: str, num_envs: int, seconds: float) -> dict[str, float]:
    """From end to end, then the emulator alone with random actions."""
    config = preset("paper", agent, game, num_envs=num_envs, min_replay_steps=2_000, replay_steps=200_000)
    loop: Any = build.make_loop(as_group(config))
    loop.begin_iteration(0)
    loop.advance(loop.schedule.first_learning_block + 20)
    jax.block_until_ready(loop.state)
    blocks, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        loop.advance(50)
        blocks += 50
    jax.block_until_ready(loop.state)
    rate = 4 * blocks * loop.schedule.steps_per_block / (time.perf_counter() - began)
    rng = np.random.default_rng(0)
    steps, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds / 2:
        for group in loop.groups:
            group.start(rng.integers(0, loop.spec.num_actions, group.num_envs).astype(np.int32))
        for group in loop.groups:
            group.finish()
        steps += 1
    alone = 4 * steps * num_envs / (time.perf_counter() - began)
    loop.close()
    return {"frames_per_second": rate, "emulator_frames_per_second": alone}


def measure_minatar(agent: str, lanes: int, seconds: float) -> dict[str, float]:
    """Steps per second over all runs of a group, after learning has started."""
    began = time.perf_counter()
    config = preset("minatar", agent, "Breakout-MinAtar", min_replay_steps=1_600)
    loop: Any = build.make_loop(RunGroup.of(config, seed=range(lanes)))
    loop.advance(loop.schedule.first_learning_block + 63)
    loop.take_totals()
    compiled, blocks, began = time.perf_counter() - began, 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        loop.advance(630)
        loop.take_totals()
        blocks += 630
    rate = blocks * loop.schedule.steps_per_block * lanes / (time.perf_counter() - began)
    return {"seed_steps_per_second": rate, "compile_seconds": compiled}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one second per figure")
    parser.add_argument(
        "--part", action="append", choices=("learner", "atari", "minatar"), help="only this part; repeatable"
    )
    parser.add_argument("--games", default=GAMES)
    parser.add_argument("--envs", type=int, default=128)
    parser.add_argument("--lanes", default="1,12,48,128")
    parser.add_argument("--agent", default="s51", help="agent of parts 2 and 3")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    seconds = 1.0 if options.quick else 5.0
    parts = options.part or ("learner", "atari", "minatar")
    found: dict[str, Any] = {"date": datetime.date.today().isoformat(), "versions": versions()}
    print(found["date"], found["versions"]["device"], f"jax {jax.__version__}", flush=True)
    if "learner" in parts:
        print(f"\n{'learner':<8}{'padding':<9}{'us/update':>10}{'plain':>8}{'ratio':>7}")
        for agent, network in (*((a, "nature_same") for a in ("s51", "u51", "c51", "dqn", "qr")), ("s51", "nature")):
            row = found[f"learner {agent} {network}"] = measure_learner(agent, network, seconds / 2)
            ours, plain = row["microseconds"], row["plain_microseconds"]
            padding = "SAME" if network == "nature_same" else "VALID"
            print(f"{agent:<8}{padding:<9}{ours:>10.1f}{plain:>8.1f}{plain / ours:>7.2f}", flush=True)
    if "minatar" in parts:
        print(f"\n{'MinAtar runs':<15}{'seed-steps/s':>13}{'/ first':>9}{'compile s':>11}")
        first = None
        for lanes in map(int, options.lanes.split(",")):
            row = found[f"minatar {lanes}"] = measure_minatar(options.agent, lanes, seconds)
            first = first or row["seed_steps_per_second"]
            rate = row["seed_steps_per_second"]
            print(f"{lanes:<15}{rate:>13,.0f}{rate / first:>9.1f}{row['compile_seconds']:>11.1f}", flush=True)
    if "atari" in parts:
        print(f"\n{'Atari, ' + str(options.envs) + ' envs':<18}{'frames/s':>9}{'emulator':>10}{'ratio':>7}")
        for game in options.games.split(","):
            row = found[f"atari {game}"] = measure_atari(options.agent, game, options.envs, seconds)
            rate, alone = row["frames_per_second"], row["emulator_frames_per_second"]
            print(f"{game:<18}{rate:>9,.0f}{alone:>10,.0f}{rate / alone:>7.2f}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
