"""Settings and presets. The published settings are written out here again, from the papers and Dopamine's files."""

import dataclasses
import json
import math
import re
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cramerl.runs.config import AGENTS, DEFAULTS, SETTINGS, TrainConfig, setting_types
from cramerl.runs.parsing import parse_setting, parse_settings
from cramerl.runs.presets import PRESETS, default_preset, preset

FIELDS = {field.name: field for field in dataclasses.fields(TrainConfig)}
HINTS = get_type_hints(TrainConfig)

# What all columns of the table share.
SHARED = {
    "discount": 0.99,
    "n_step": 1,
    "double_q": False,
    "update_period_steps": 4,
    "batch_size": 32,
    "replay_steps": 1_000_000,
    "num_atoms": 51,
    "v_min": -10.0,
    "v_max": 10.0,
    "iteration_steps": 250_000,
    "steps": 200 * 250_000,
    "max_episode_steps": 27_000,
    "clip_rewards": True,
    "fire_reset": False,
    "full_action_space": False,
}
ICML = {
    "target_period_steps": 10_000,
    "min_replay_steps": 50_000,
    "exploration_decay_steps": 1_000_000,
    "sticky": 0.0,
    "life_loss_ends": True,
    "noop_max": 0,
    "network": "nature_same",
    "eval_epsilon": 0.001,
}
STICKY = {
    "target_period_steps": 8_000,
    "min_replay_steps": 20_000,
    "exploration_decay_steps": 250_000,
    "sticky": 0.25,
    "life_loss_ends": False,
    "noop_max": 0,
    "network": "nature_same",
    "eval_epsilon": 0.001,
}
C51 = {"optimiser": "adam", "learning_rate": 0.00025, "optimiser_epsilon": 0.0003125}
S51 = {"optimiser": "adam", "learning_rate": 0.000025, "optimiser_epsilon": 0.00003125}
LAMBDA = {"mass_penalty": 10.0, "mass_penalty_scale": "orthonormal", "normalisation": "after"}
RMSPROP = {"optimiser": "rmsprop", "learning_rate": 0.00025, "optimiser_epsilon": 0.00001, "dqn_loss": "huber"}
ADAM = {"optimiser": "adam", "learning_rate": 0.0000625, "optimiser_epsilon": 0.00015, "dqn_loss": "squared"}
TABLE: list[tuple[str, str, dict[str, Any]]] = [
    ("icml", "c51", {**ICML, **C51, "exploration_final": 0.01}),
    ("machado", "c51", {**STICKY, **C51, "exploration_final": 0.01}),
    ("icml", "dqn", {**ICML, **RMSPROP, "exploration_final": 0.01}),
    ("machado", "dqn", {**STICKY, **ADAM, "exploration_final": 0.01}),
    ("paper", "s51", {**ICML, **S51, **LAMBDA, "exploration_final": 0.05}),
    ("paper", "c51", {**ICML, **C51, "exploration_final": 0.05}),
    ("paper", "dqn", {**ICML, **RMSPROP, "exploration_final": 0.05}),
    # Not columns of the table: what the agent and the protocol have of their own, put together.
    ("icml", "s51", {**ICML, **S51, **LAMBDA, "exploration_final": 0.01}),
    ("machado", "s51", {**STICKY, **S51, **LAMBDA, "exploration_final": 0.01}),
    (
        "dqn-nature",
        "dqn",
        {
            "optimiser": "rmsprop",
            "learning_rate": 0.00025,
            "optimiser_epsilon": 0.01 / 32**2,  # 0.01 on gradients summed over the batch
            "dqn_loss": "huber",
            "target_period_steps": 10_000,
            "min_replay_steps": 50_000,
            "exploration_final": 0.1,
            "exploration_decay_steps": 1_000_000,
            "sticky": 0.0,
            "life_loss_ends": True,
            "noop_max": 30,
            "network": "nature",
            "eval_epsilon": 0.05,
        },
    ),
]


@pytest.mark.parametrize(("name", "agent", "column"), TABLE, ids=[f"{p}-{a}" for p, a, _ in TABLE])
def test_published_settings(name, agent, column):
    settings = preset(name, agent, "ALE/Pong-v5").to_json()
    expected = SHARED | column | {"preset": name, "agent": agent, "env": "ALE/Pong-v5"}
    assert {key: settings[key] for key in expected} == expected
    assert settings["max_episode_steps"] * 4 == 108_000


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_fits_every_agent(name, agent):
    config = preset(name, agent, "pong")
    assert (config.agent, config.preset) == (agent, name)
    assert config.min_replay_steps <= config.replay_steps
    assert config.log_steps <= config.iteration_steps <= config.steps
    assert PRESETS[name]


@pytest.mark.parametrize(
    ("env", "name"),
    [
        ("Breakout-MinAtar", "minatar"),
        ("Pong-misc", "minatar"),
        ("pong", "paper"),
        ("SpaceInvaders", "paper"),
        ("space_invaders", "paper"),
        ("ALE/Pong-v5", "paper"),
        ("PongNoFrameskip-v4", "paper"),
        ("CartPole-v1", "classic"),
        ("gym:CartPole-v1", "classic"),
        ("Catch-bsuite", "classic"),
    ],
)
def test_the_preset_that_fits_an_environment(env, name):
    assert default_preset(env) == name
    assert preset(None, "s51", env) == preset(name, "s51", env)


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("env", ["Pong-misc", "Breakout-MinAtar", "CartPole-v1"])
def test_only_presets_of_a_paper_have_a_support(agent, env):
    config = preset(None, agent, env)
    assert (config.v_min, config.v_max) == (None, None)
    assert (preset("paper", agent, "pong").v_min, preset("paper", agent, "pong").v_max) == (-10.0, 10.0)


def test_the_network_of_pong_misc_is_for_its_pictures():
    assert preset(None, "s51", "Pong-misc").network == "minatar_strided"
    assert preset("minatar", "s51", "Pong-misc", network="minatar").network == "minatar"


def test_changes_come_last():
    config = preset("paper", "s51", "pong", learning_rate=1e-3, sticky=0.25, seed=4)
    assert (config.learning_rate, config.sticky, config.seed) == (1e-3, 0.25, 4)
    untouched = dataclasses.replace(config, learning_rate=2.5e-5, sticky=0.0, seed=0)
    assert untouched == preset("paper", "s51", "pong")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("fast", "s51", "pong"),
            "preset must be one of paper, icml, machado, dqn-nature, minatar, classic, smoke, got",
        ),
        (("paper", "s52", "pong"), "agent must be one of dqn, c51, s51, u51, l51, qr, hl_gauss, got 's52'"),
        ((None, "s51", ""), "env must be the name of an environment, got ''"),
        ((None, "s51", None), "env must be the name of an environment, got None"),
    ],
)
def test_bad_presets(arguments, sentence):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}"):
        preset(*arguments)


def test_a_change_that_is_no_setting():
    with pytest.raises(ValueError, match=r"^'learning_rat' is not a setting; did you mean 'learning_rate'\?$"):
        preset("paper", "s51", "pong", learning_rat=1.0)


def _ignored(name: str, meant: str, agent: str) -> str:
    return f"{name} is a setting of {meant} and would be ignored by {agent}: leave it out"


@pytest.mark.parametrize(
    ("agent", "name", "value", "meant"),
    [
        ("dqn", "mean_weight", 0.1, "s51, u51"),
        (
            "dqn",
            "num_atoms",
            51,
            "c51, s51, u51, l51, qr, hl_gauss",
        ),  # the default too
        ("dqn", "base_distribution", "zero", "u51"),
        ("c51", "mass_penalty", 1.0, "s51"),
        ("s51", "dqn_loss", "squared", "dqn"),
    ],
)
def test_a_setting_that_the_agent_has_not(agent, name, value, meant):
    with pytest.raises(ValueError, match=f"^{re.escape(_ignored(name, meant, agent))}$"):
        preset("minatar", agent, "CartPole-v1", **{name: value})
    for other in meant.split(", "):
        assert getattr(preset("minatar", other, "CartPole-v1", **{name: value}), name) == value


def test_a_support_is_a_setting_of_agents_with_atoms():
    with pytest.raises(ValueError, match=re.escape(_ignored("v_min", "c51, s51, u51, l51, hl_gauss", "qr"))):
        preset("minatar", "qr", "CartPole-v1", v_min=-5.0, v_max=5.0)


@pytest.mark.parametrize(("name", "value"), [("noop_max", 30), ("life_loss_ends", False)])
def test_a_setting_that_the_environment_has_not(name, value):
    words = f"{name} is a setting of Atari games and would be ignored by CartPole-v1: leave it out"
    with pytest.raises(ValueError, match=f"^{words}$"):
        preset("classic", "dqn", "CartPole-v1", **{name: value})
    assert getattr(preset(None, "dqn", "ALE/Pong-v5", **{name: value}), name) == value
    assert preset("dqn-nature", "dqn", "CartPole-v1").noop_max == 30  # presets may set what is not used


def test_settings_that_were_written_may_have_what_the_agent_has_not():
    """Records hold all settings, and older ones were made when such were taken and ignored."""
    written = TrainConfig(agent="dqn").to_json() | {"mean_weight": 0.1, "num_atoms": 7}
    config = TrainConfig.from_json(written)
    assert (config.mean_weight, config.num_atoms) == (0.1, 7)
    assert dataclasses.replace(config, steps=7).mean_weight == 0.1


def test_an_agent_has_the_settings_that_its_head_reads():
    from cramerl.deep.heads import HEADS, LinearHead

    support = {"num_atoms", "v_min", "v_max"}  # and where learning starts, which the learner reads
    of_others = {"base_distribution", "q_lambda", "q_lambda_greedy"}  # which the learner and the replay read
    for agent, head in HEADS.items():
        read = {field.name for field in dataclasses.fields(head)}
        read = read - {"support"} | (support if "support" in read else set())
        only_for_some = {name for name, setting in SETTINGS.items() if set(setting.agents) != set(AGENTS)}
        assert {name for name in only_for_some - of_others if agent in SETTINGS[name].agents} == read
        assert issubclass(head, LinearHead) == (agent in SETTINGS["q_lambda"].agents)
    assert set(HEADS) == set(AGENTS)


BAD = [
    ("agent", "s52", "agent must be one of dqn, c51, s51, u51, l51, qr, hl_gauss, got 's52'"),
    ("agent", None, "agent must be one of dqn, c51, s51, u51, l51, qr, hl_gauss, got None"),
    ("env", 3, "env must be text, got 3"),
    ("tensorboard", 1, "tensorboard must be true or false, got 1"),
    ("double_q", "true", "double_q must be true or false, got 'true'"),
    ("checkpoints", "some", "checkpoints must be one of full, weights, none, got 'some'"),
    ("track", "mlflow", "track must be one of none, wandb, trackio, got 'mlflow'"),
    ("seed", -1, f"seed must be an integer >= 0 and <= {2**31 - 1}, got -1"),
    ("seed", 2**31, f"seed must be an integer >= 0 and <= {2**31 - 1}, got {2**31}"),
    ("seed", True, "seed must be an integer, got True"),
    ("steps", 0, "steps must be an integer >= 1 and <= 2147483647, got 0"),
    ("steps", 1.5, "steps must be an integer, got 1.5"),
    ("steps", "10", "steps must be an integer, got '10'"),
    ("steps", math.inf, "steps must be an integer, got inf"),
    ("n_step", 101, "n_step must be an integer >= 1 and <= 100, got 101"),
    ("learning_rate", 0, "learning_rate must be a number > 0, got 0"),
    ("learning_rate", math.nan, "learning_rate must be a number, got nan"),
    ("learning_rate", None, "learning_rate must be a number, got None"),
    ("discount", 1.01, "discount must be a number >= 0 and <= 1, got 1.01"),
    ("sticky", -0.25, "sticky must be a number >= 0 and <= 1, got -0.25"),
    ("num_atoms", 1, "num_atoms must be an integer >= 2 and <= 10000, got 1"),
    ("hidden_units", (), "hidden_units must be one or more integers, got none"),
    ("hidden_units", (64, 0), "hidden_units must be an integer >= 1 and <= 1000000, got 0"),
    ("hidden_units", (64.5,), "hidden_units must be an integer, got 64.5"),
    ("hidden_units", 64, "hidden_units must be a list of numbers, got 64"),
    ("hidden_units", "64", "hidden_units must be a list of numbers, got '64'"),
    ("v_max", -10.0, "v_min and v_max must be given together or not at all, got None and -10.0"),
    ("q_lambda", 1.5, "q_lambda must be a number >= 0 and <= 1, got 1.5"),
    (
        "q_lambda",
        0.5,
        "n_step must be at least 2 with q_lambda, because it is how many steps the targets look ahead (5, for "
        "instance), got 1",
    ),
    ("q_lambda_greedy", 0.5, "q_lambda_greedy needs q_lambda above 0, got 0.5 and q_lambda 0"),
    (
        "eval_period_steps",
        100,
        "eval_episodes must be at least 1 with eval_period_steps = 100, or nothing is evaluated, got 0",
    ),
    ("min_replay_steps", 100_001, "min_replay_steps must be at most replay_steps = 100000, got 100001"),
]


@pytest.mark.parametrize(("name", "value", "sentence"), BAD, ids=[f"{n}={v!r}" for n, v, _ in BAD])
def test_bad_values_get_a_sentence(name, value, sentence):
    with pytest.raises(ValueError) as caught:
        TrainConfig(**{name: value})
    assert str(caught.value) == sentence
    with pytest.raises(ValueError):
        dataclasses.replace(TrainConfig(), **{name: value})


def test_types_are_resolved_once():
    """A sweep makes thousands of settings, and resolving takes longer than all their checks."""
    TrainConfig()
    before = setting_types.cache_info()
    TrainConfig(seed=1)
    assert setting_types.cache_info().misses == before.misses == 1
    assert setting_types() == HINTS


@pytest.mark.parametrize("name", ["steps", "learning_rate"])
def test_integers_beyond_floats_get_a_sentence(name):
    with pytest.raises(ValueError, match=f"{name} must be"):
        TrainConfig(**{name: 10**400})


def test_values_take_the_type_of_their_setting():
    config = TrainConfig(steps=1e6, learning_rate=1, hidden_units=[3, 4], v_min=0, v_max=1)
    assert (config.steps, type(config.steps)) == (1_000_000, int)
    assert (config.learning_rate, type(config.learning_rate)) == (1.0, float)
    assert config.hidden_units == (3, 4)
    assert type(config.v_min) is float
    assert hash(config) == hash(dataclasses.replace(config, steps=1_000_000))


def test_q_lambda_is_not_checked_for_agents_that_do_not_use_it():
    assert TrainConfig(agent="c51", q_lambda=0.5).n_step == 1


def test_without_a_penalty_its_scale_means_nothing():
    assert TrainConfig(mass_penalty=0, mass_penalty_scale="total") == TrainConfig(mass_penalty=0)


def test_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        TrainConfig().seed = 1  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("batchsize", "'batchsize' is not a setting; did you mean 'batch_size'?"),
        ("gamma_ray", "'gamma_ray' is not a setting"),
    ],
)
def test_unknown_names(name, words):
    with pytest.raises(ValueError) as caught:
        TrainConfig.from_json({"seed": 0, name: 1})
    assert str(caught.value) == words


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("steps", "1e6", 1_000_000),
        ("steps", "2_000", 2000),
        ("learning_rate", "2.5e-5", 2.5e-5),
        ("v_min", "-1e1", -10.0),
        ("v_min", "none", None),
        ("tensorboard", "true", True),
        ("tensorboard", "No", False),
        ("tensorboard", "1", True),
        ("hidden_units", "64,64", (64, 64)),
        ("hidden_units", "1e2", (100,)),
        ("agent", "u51", "u51"),
        ("env", "1e6", "1e6"),
    ],
)
def test_settings_from_words(name, text, value):
    parsed = parse_setting(name, text)
    assert (parsed, type(parsed)) == (value, type(value))


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("steps", "1.5", "steps must be an integer, got '1.5'"),
        ("steps", "many", "steps must be an integer, got 'many'"),
        ("steps", "1e400", "steps must be an integer, got '1e400'"),
        ("steps", "", "steps must be an integer, got ''"),
        ("learning_rate", "nan", "learning_rate must be a number, got 'nan'"),
        ("double_q", "maybe", "double_q must be true or false, got 'maybe'"),
        ("hidden_units", "64,x", "hidden_units must be an integer, got 'x'"),
    ],
)
def test_bad_words(name, text, sentence):
    with pytest.raises(ValueError) as caught:
        parse_setting(name, text)
    assert str(caught.value) == sentence


def values_of(name):
    """Good values of a setting, from its type and its bounds alone."""
    hint, bounds = HINTS[name], SETTINGS[name].bounds
    if get_origin(hint) is Literal:
        return st.sampled_from(get_args(hint))
    if name == "env_options":
        return st.dictionaries(st.sampled_from("abc"), st.booleans() | st.integers(), max_size=2).map(
            lambda options: tuple(sorted(options.items()))
        )
    if get_origin(hint) is tuple:
        values = st.integers(1, 512) if get_args(hint)[0] is int else st.floats(1e-6, 1e3)
        return st.lists(values, min_size=1, max_size=3, unique=True).map(tuple)
    if hint is bool:
        return st.booleans()
    if hint is str:
        return st.text(max_size=10).filter(str.isprintable)
    low, high = bounds.get("low", bounds.get("above", -1000)), bounds.get("high", 10_000)
    if hint is int:
        return st.integers(low, high)
    return st.floats(low, high, exclude_min="above" in bounds)


CONFIGS = st.fixed_dictionaries({}, optional={name: values_of(name) for name in FIELDS})


def wrong_q_lambda(values):
    if values["agent"] not in ("dqn", "s51", "u51", "l51"):
        return False
    return values["n_step"] == 1 if values["q_lambda"] > 0 else values["q_lambda_greedy"] != 1


@given(CONFIGS)
def test_settings_survive_json(values):
    ends = [values.get(name) for name in ("v_min", "v_max")]
    least, most = values.get("min_replay_steps", 5_000), values.get("replay_steps", 100_000)
    wrong_ends = ends.count(None) == 1 or (None not in ends and not ends[0] < ends[1])
    no_evaluation = values.get("eval_period_steps") and not values.get("eval_episodes")
    if wrong_ends or least > most or no_evaluation or wrong_q_lambda({**DEFAULTS, **values}):
        words = r"must be (given together|less than|at most|at least [12])|needs q_lambda"
        with pytest.raises(ValueError, match=words):
            TrainConfig(**values)
        return
    config = TrainConfig(**values)
    text = json.dumps(config.to_json(), allow_nan=False)
    again = TrainConfig.from_json(json.loads(text))
    assert again == config
    assert json.dumps(again.to_json()) == text
    assert list(config.to_json()) == list(FIELDS)
    for name, value in values.items():
        if name not in ("mass_penalty_scale", "environment_resets"):  # some values mean the same as another
            assert getattr(config, name) == value


@given(st.sampled_from([n for n in FIELDS if HINTS[n] in (int, float)]), st.data())
def test_numbers_written_out_are_read_back(name, data):
    value = data.draw(values_of(name))
    assert parse_setting(name, repr(value)) == value


@given(st.sampled_from([n for n in FIELDS if HINTS[n] in (int, float)]), st.data())
def test_numbers_beyond_their_bounds_are_named(name, data):
    bounds = SETTINGS[name].bounds
    outside = (
        [data.draw(st.integers(max_value=math.ceil(bounds["low"]) - 1, min_value=-(10**6)))] if "low" in bounds else []
    )
    if "above" in bounds:
        outside.append(data.draw(st.floats(max_value=bounds["above"], min_value=-1e6)))
    if "high" in bounds:
        outside.append(data.draw(st.integers(min_value=math.floor(bounds["high"]) + 1, max_value=10**12)))
    for value in outside:
        with pytest.raises(ValueError, match=rf"^{name} must be (an integer|a number) .*got {re.escape(str(value))}$"):
            TrainConfig(**{name: value})


def test_every_setting_is_explained_and_has_a_group():
    for setting in SETTINGS.values():
        assert setting.help
        assert setting.group in ("run", "environment", "learner", "head", "evaluation")


def test_several_values():
    assert parse_settings("seed", "5-7,0") == [0, 5, 6, 7]
    assert parse_settings("learning_rate", "1e-3, 2") == [1e-3, 2.0]
    assert parse_settings("normalisation", "after,before") == ["after", "before"]
    assert parse_settings("hidden_units", "8,16") == [(8, 16)]
    assert parse_settings("initial_weights", "a,b") == ["a,b"]
    with pytest.raises(ValueError, match="normalisation must be one of after, before, got 'never'"):
        parse_settings("normalisation", "after,never")


@pytest.mark.parametrize("name", [*PRESETS, None])
def test_what_a_config_prints_makes_it_again(name):
    for agent in AGENTS:
        for changes in ({}, {"seed": 3, "hidden_units": (5, 6), "n_step": 2}):
            config = preset(name, agent, "pong", **changes)
            assert "\n" not in repr(config)
            assert eval(repr(config)) == config
    free = TrainConfig(agent="u51", env="CartPole-v1", v_min=0.0, v_max=1.0)
    assert repr(free) == "TrainConfig(agent='u51', env='CartPole-v1', v_min=0.0, v_max=1.0)"
    assert eval(repr(free)) == free


def test_agents_are_known_by_the_names_of_their_papers():
    for written, name in {"S51": "s51", "QR-DQN": "qr", "qrdqn": "qr", "HL-Gauss": "hl_gauss", "C51": "c51"}.items():
        assert preset("smoke", written, "CartPole-v1").agent == TrainConfig(agent=written).agent == name
    with pytest.raises(ValueError, match=r"^agent must be one of .*, got 'ppo'$"):
        preset("smoke", "ppo", "CartPole-v1")


def test_no_word_means_two_settings():
    words = [word for name, setting in SETTINGS.items() for word in (name, *setting.aliases, *setting.near)]
    assert len(words) == len(set(words))
