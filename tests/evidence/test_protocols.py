"""Which runs are comparable, and how that is put in words."""

import dataclasses

from study_runs import change_config, write_run

from cramerl.evidence.curves import read_curves
from cramerl.evidence.protocols import ScoringProtocol
from cramerl.runs.group import RunGroup
from cramerl.runs.presets import preset


def test_the_protocol_of_atari(tmp_path):
    write_run(tmp_path / "pong", "c51", "pong")
    write_run(
        tmp_path / "sticky", "c51", "ALE/Pong-v5", sticky=0.25, life_loss_ends=False, noop_max=30, fire_reset=True
    )
    first, second = (read_curves([tmp_path / name])[0] for name in ("pong", "sticky"))
    assert first.frames[-1] == 4000
    assert first.protocol.sentence == (
        "Atari, not sticky, a lost life ends the return, no no-op starts, at most 15,625 steps an episode, "
        "learning from clipped rewards, epsilon 0.05, training scores"
    )
    assert (
        "sticky 0.25, lives do not matter, up to 30 no-ops at the start, fire at the start" in second.protocol.sentence
    )
    assert first.protocol.difference([second.protocol]) == (
        "not sticky, a lost life ends the return, no no-op starts, no fire at the start"
    )
    change_config(tmp_path / "pong", max_episode_steps=0)
    assert read_curves([tmp_path / "pong"])[0].protocol == first.protocol  # the same limit


def test_no_episode_of_atari_outlasts_an_iteration():
    config = preset("paper", "c51", "pong", num_envs=128)
    assert ScoringProtocol.of(config, "training").max_episode_steps == 250_000 // 128
    assert ScoringProtocol.of(config, "evaluation").max_episode_steps == 27_000
    longer = dataclasses.replace(config, iteration_steps=10**7)
    assert ScoringProtocol.of(longer, "training").max_episode_steps == 27_000


def test_an_iteration_is_a_limit_only_where_environments_are_reset():
    """Runs of earlier versions were all reset; their config.json does not say so."""
    config = preset("paper", "c51", "pong", num_envs=128, checkpoints="none")
    assert ScoringProtocol.of(config, "training").max_episode_steps == 27_000
    earlier = {name: value for name, value in config.to_json().items() if name != "environment_resets"}
    (read,) = RunGroup.from_json(earlier).configs
    assert ScoringProtocol.of(read, "training").max_episode_steps == 250_000 // 128
    assert RunGroup.from_json(config.to_json()).first == config
    resumable = RunGroup.from_json({**earlier, "checkpoints": "full"}).first
    assert resumable == dataclasses.replace(config, checkpoints="full")
    assert dataclasses.replace(resumable, checkpoints="none") == config


def test_settings_of_atari_mean_nothing_elsewhere(tmp_path):
    run = write_run(tmp_path / "run")
    other = write_run(tmp_path / "other")
    change_config(other, noop_max=30, life_loss_ends=True)  # as older runs may have it
    assert read_curves([run])[0].protocol == read_curves([other])[0].protocol


def test_arguments_of_the_environment_are_part_of_the_protocol():
    plain, still = (
        ScoringProtocol.of(preset("smoke", "dqn", "FrozenLake-v1", env_options=options), "training")
        for options in ({}, {"is_slippery": False})
    )
    assert plain != still
    assert still.sentence == f"is_slippery=false, {plain.sentence}"
    assert still.difference([plain]) == "is_slippery=false"
    assert plain.difference([still]) == "no arguments of the environment"


def test_protocols_of_other_libraries_are_not_known(tmp_path):
    known = read_curves([write_run(tmp_path / "a", env="Breakout-MinAtar")])[0].protocol
    other = read_curves([write_run(tmp_path / "b", env="Breakout-MinAtar", sticky=0.25)])[0].protocol
    unknown = ScoringProtocol.unknown("MinAtar", "training")
    assert unknown != known
    assert unknown.sentence.startswith("not known")
    assert unknown.difference([known, unknown]) == "protocol not known"
    assert unknown.difference([unknown]) == ""
    assert known.difference([known, unknown]) == ""  # what nobody knows is no difference
    assert other.difference([known, other, unknown]) == "sticky 0.25"
    assert sorted([unknown, known]) != []  # reports sort them
