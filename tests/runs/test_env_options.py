"""Arguments of an environment as a setting: texts, JSON, and what is refused."""

import dataclasses
import json
import shlex
from argparse import ArgumentParser

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cramerl.cli.settings import add_setting_flags, setting_texts, setting_words
from cramerl.runs.config import TrainConfig
from cramerl.runs.env_options import options_text, parse_options
from cramerl.runs.parsing import parse_setting
from cramerl.runs.presets import preset

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8)
)
NAMES = st.from_regex(r"[a-z_]{1,6}", fullmatch=True)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("false", False),
        ("False", False),
        ("None", None),
        ("null", None),
        ("-5", -5),
        ("1e-3", 1e-3),
        ("8x8", "8x8"),
        ('"8"', "8"),
        ("", ""),
        ("a=b", "a=b"),
    ],
)
def test_values(text, value):
    ((key, found),) = parse_options("env_options", f"key={text}")
    assert (key, found, type(found)) == ("key", value, type(value))


@given(st.dictionaries(NAMES, SCALARS, max_size=3))
def test_options_survive_json_and_text(options):
    config = TrainConfig(env="FrozenLake-v1", env_options=options)
    assert config.env_options == tuple(sorted(options.items()))
    plain = json.loads(json.dumps(config.to_json(), allow_nan=False))
    assert plain["env_options"] == options
    assert TrainConfig.from_json(plain) == config == dataclasses.replace(config)
    hash(config)
    for key, value in options.items():
        if "\n" not in str(value):
            assert repr(parse_options("env_options", options_text(((key, value),)))) == repr(((key, value),))


def test_numbers_of_numpy_are_plain():
    ((_, value),) = TrainConfig(env_options={"gravity": np.float32(0.5)}).env_options
    assert type(value) is float


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (3, r"^env_options must be arguments by name, got 3$"),
        ({"a b": 1}, r"^env_options must have different names of arguments, got 'a b'$"),
        ([("a", 1), ("a", 2)], r"^env_options must have different names of arguments, got 'a'$"),
        ({"a": [1]}, r"^env_options must have numbers, true, false, null or text as values, got a=\[1\]$"),
        ({"a": float("nan")}, r"got a=nan$"),
        ({"a": float("-inf")}, r"got a=-inf$"),
    ],
)
def test_what_is_refused(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        TrainConfig(env_options=options)


@pytest.mark.parametrize("text", ["gravity", "=3", "a=1\na=2", "a=[1, 2]", "a=NaN"])
def test_texts_that_are_refused(text):
    with pytest.raises(ValueError, match=r"^env_options must "):
        parse_setting("env_options", text)


def test_atari_games_have_none():
    words = "env_options is a setting of gymnax and Gymnasium environments and would be ignored by pong: leave it out"
    with pytest.raises(ValueError, match=f"^{words}$"):
        preset(None, "dqn", "pong", env_options={"mode": 1})


def test_the_flag_may_be_given_several_times():
    parser = ArgumentParser(add_help=False)
    add_setting_flags(parser, ("env",))
    words = ["--env-option", "is_slippery=false", "--env-option", "map_name=8x8", "--num-envs", "2"]
    texts = setting_texts(parser.parse_args(words), ())
    assert parse_setting("env_options", texts["env_options"]) == (("is_slippery", False), ("map_name", "8x8"))
    again = [word for name, text in texts.items() for word in setting_words(name, text)]
    assert shlex.join(again) == shlex.join(words)
