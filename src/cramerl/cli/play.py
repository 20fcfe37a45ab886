"""`cramerl play`: let a trained agent play, and print its scores."""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from typing import TYPE_CHECKING, Any

from cramerl.cli.flags import (
    AGENT_HELP,
    add_lane_flag,
    add_trust_flag,
    integer_from,
    one_agent,
    probability,
    require_deep_libraries,
    show_progress,
)
from cramerl.runs.config import TrainConfig
from cramerl.runs.folder import load_config

if TYPE_CHECKING:
    from cramerl.deep.agent import Episode


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    parser.description = (
        "Play whole episodes with a trained agent, without learning. Scores are in the game's own points."
    )
    add = parser.add_argument
    add("folder", metavar="AGENT", help=AGENT_HELP)
    add_lane_flag(parser)
    add("--episodes", type=integer_from(1), default=5, metavar="N", help="how many (default: %(default)s)")
    add("--epsilon", type=probability, help="fraction of random actions (default: the run's eval_epsilon)")
    add("--seed", type=integer_from(0, 2**31 - 1), default=0, help="of environments and actions (default: %(default)s)")
    text = "cut episodes that have not ended after N steps (default: 100000, or the run's own time limit)"
    add("--max-steps", type=integer_from(1), metavar="N", help=text)
    add("--json", action="store_true", help="print JSON instead")
    add_trust_flag(parser)


def run(options: argparse.Namespace) -> int:
    """Play the episodes."""
    options.folder = one_agent(options.folder)
    config = load_config(options.folder, options.lane)
    require_deep_libraries()
    options.epsilon = config.eval_epsilon if options.epsilon is None else options.epsilon
    from cramerl.deep.agent import play_episodes
    from cramerl.runs import agents, build
    from cramerl.runs.evaluator import most_steps, warning_of_endless_games, warning_of_one_game

    if one_game := warning_of_one_game(config, options.episodes, options.epsilon):
        print(f"cramerl: {one_game}", file=sys.stderr)
    build.require_trust(config, trust_modules=options.trust_modules)
    show_progress("loading ...")
    agent = agents.load_agent(options.folder, lane=options.lane)
    envs = build.make_envs(config, min(options.episodes, 16), trust_modules=options.trust_modules)
    steps = ended = 0

    def count(observations: Any, actions: Any, step: Any) -> None:
        nonlocal steps, ended
        steps, ended = steps + 1, ended + int(step.ended.sum())
        if steps % 100 == 0:
            done = f"{min(ended, options.episodes)} of {options.episodes} episodes"
            show_progress(f"{steps:,} steps in each environment, {done} ended")

    try:
        limit = options.max_steps or most_steps(config)
        playing = {"epsilon": options.epsilon, "seed": options.seed, "max_steps": limit}
        played = play_episodes(agent, envs, options.episodes, **playing, on_step=count)
    finally:
        envs.close()
        show_progress("")
    if endless := warning_of_endless_games(config, played, limit):
        print(f"cramerl: {endless}", file=sys.stderr)
    print_episodes(options, config, played)
    return 0


def print_episodes(options: argparse.Namespace, config: TrainConfig, played: list[Episode]) -> None:
    """Print the score of each episode and their mean."""
    scores = [episode.score for episode in played]
    mean = statistics.fmean(scores)
    error = statistics.stdev(scores) / math.sqrt(len(scores)) if len(scores) > 1 else None
    if options.json:
        record = {"agent": config.agent, "env": config.env, "epsilon": options.epsilon, "seed": options.seed}
        episodes = [episode._asdict() for episode in played]
        record |= {"lane": options.lane, "episodes": episodes, "mean": mean, "standard_error": error}
        print(json.dumps(record, indent=2))
        return
    for number, episode in enumerate(played, start=1):
        print(f"episode {number:>3}   score {episode.score:>10,.2f}   {episode.length:>7,} steps")
    spread = f" ± {error:,.2f} (standard error)" if error is not None else " (one episode)"
    how = f"playing without learning, {options.epsilon:.3g} of the actions random"
    print(f"mean score {mean:,.2f}{spread}: {config.agent} on {config.env}, {how}")
