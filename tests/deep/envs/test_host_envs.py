"""Environments stepped from Python, against single ones stepped by hand."""

import ale_py
import cv2
import gymnasium
import numpy as np
import pytest
from ale_py import roms
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary

from cramerl.deep.envs.atari import AtariEnvs
from cramerl.deep.envs.base import Step
from cramerl.deep.envs.gymnasium import GymnasiumEnvs

TOY = "cramerl-tests/Toy-v0"


def seeds_of(seed, n):
    """What `reset` gives each of n environments."""
    return [int(s) for s in np.random.SeedSequence(seed).generate_state(n) % (2**31 - 1)]


def play(envs, *, seed=0, num_steps=200, actions_seed=0):
    """The first frames, and a list of steps of random actions."""
    rng = np.random.default_rng(actions_seed)
    start = envs.reset(seed)
    shape = (num_steps, envs.num_envs)
    return start, [envs.step(a) for a in rng.integers(0, envs.spec.num_actions, shape, dtype=np.int32)]


def stacked(steps):
    return Step(*(np.stack(column) for column in zip(*steps, strict=True)))


def assert_same(one, other):
    np.testing.assert_array_equal(one[0], other[0])
    for a, b in zip(stacked(one[1]), stacked(other[1]), strict=True):
        np.testing.assert_array_equal(a, b)


def assert_next_step_autoreset(step):
    """A step after an end is not real; no other begins an episode."""
    after = np.zeros_like(step.ended)
    after[1:] = step.ended[:-1]
    assert step.first[after].all()
    assert not step.rewards[after].any()
    assert not step.terminated[after].any()
    assert not step.ended[after].any()
    assert not (step.first & step.ended).any()


def atari_twin(game, seed, actions, *, sticky, max_frames, life_loss_ends):
    """One game on ALE's own interface: four frames by hand, lives counted one by one. Returns frames and steps."""
    ale = ale_py.ALEInterface()
    ale.setInt("random_seed", seed)
    ale.setFloat("repeat_action_probability", sticky)
    ale.setInt("max_num_frames_per_episode", max_frames)
    rom = roms.get_rom_path(game)
    assert rom is not None
    ale.loadROM(rom)
    ale.reset_game()

    def shrunk(*screens):
        return cv2.resize(np.max(screens, axis=0), (84, 84), interpolation=cv2.INTER_AREA)

    start, steps, over = shrunk(ale.getScreenGrayscale()), [], False
    for action in actions:
        if over:
            ale.reset_game()
            over = False
            steps.append(Step(shrunk(ale.getScreenGrayscale()), 0.0, False, False, True))
            continue
        reward, screens, lives = 0.0, [], ale.lives()
        while len(screens) < 4 and not ale.game_over():
            reward += ale.act(ale.getMinimalActionSet()[action])
            screens.append(ale.getScreenGrayscale())
        over = ale.game_over()
        lost = life_loss_ends and ale.lives() < lives
        terminated = ale.game_over(with_truncation=False) or lost
        steps.append(Step(shrunk(*screens[-2:]), reward, terminated, over, lost and not over))
    return start, steps


@pytest.mark.parametrize(
    ("game", "sticky", "max_frames", "life_loss_ends"),
    [
        ("breakout", 0.0, 108_000, True),
        ("breakout", 0.25, 108_000, True),
        ("breakout", 0.0, 108_000, False),
        ("space_invaders", 0.0, 903, True),
        ("pong", 0.25, 700, True),
    ],
)
def test_atari_is_a_single_game_stepped_by_hand(game, sticky, max_frames, life_loss_ends):
    n, num_steps = 2, 300
    rules = {"sticky": sticky, "life_loss_ends": life_loss_ends}
    envs = AtariEnvs(game, n, max_episode_frames=max_frames, **rules)
    start, steps = play(envs, seed=5, num_steps=num_steps)
    envs.close()
    ours = stacked(steps)
    assert ours.frames.shape == (num_steps, n, 84, 84)
    assert (ours.frames.dtype, ours.rewards.dtype) == (np.uint8, np.float32)
    assert_next_step_autoreset(ours)

    actions = np.random.default_rng(0).integers(0, envs.spec.num_actions, (num_steps, n), dtype=np.int32)
    for i, seed in enumerate(seeds_of(5, n)):
        twin_start, twin = atari_twin(game, seed, actions[:, i], max_frames=max_frames, **rules)
        theirs = stacked(twin)
        np.testing.assert_array_equal(start[i], twin_start)
        for name in ("rewards", "terminated", "ended", "first"):
            np.testing.assert_array_equal(getattr(ours, name)[:, i], getattr(theirs, name), err_msg=name)
        # ALE's vector does not draw the emulator frame on which an episode stops.
        np.testing.assert_array_equal(ours.frames[~ours.ended[:, i], i], theirs.frames[~theirs.ended])

    # The comparison is empty unless there were ends of the kinds it is about.
    assert ours.ended.sum() >= 2
    if game == "breakout":
        assert (ours.terminated & ours.ended).any()
        assert (ours.terminated & ~ours.ended).sum() == (ours.first & ours.terminated).sum()
        assert (ours.terminated & ~ours.ended).any() == life_loss_ends
    elif game == "pong":
        assert not ours.terminated.any()
    else:
        assert ours.rewards.max() > 1, "raw scores"
        assert (ours.ended & ~ours.terminated).any()


def test_a_life_lost_as_time_runs_out_is_both():
    envs = AtariEnvs("breakout", 1)
    steps = stacked(play(envs, num_steps=100)[1])
    lost = int(np.argmax(steps.terminated[:, 0]))
    assert not steps.ended[lost, 0]
    short = AtariEnvs("breakout", 1, max_episode_frames=4 * (lost + 1))
    step = stacked(play(short, num_steps=lost + 2)[1])
    assert (step.terminated[lost, 0], step.ended[lost, 0], step.first[lost, 0]) == (True, True, False)
    assert (step.terminated[-1, 0], step.ended[-1, 0], step.first[-1, 0]) == (False, False, True)


def test_a_time_limit_does_not_terminate():
    steps = stacked(play(AtariEnvs("pong", 2, max_episode_frames=40), num_steps=22)[1])
    assert np.flatnonzero(steps.ended[:, 0]).tolist() == [9, 20]
    assert np.flatnonzero(steps.first[:, 0]).tolist() == [10, 21]
    assert not steps.terminated.any()


@pytest.mark.parametrize("options", [{"sticky": 0.25}, {"noop_max": 30, "fire_reset": True}])
def test_atari_repeats_itself_by_seed(options):
    options |= {"max_episode_frames": 160, "num_threads": 2}
    envs = AtariEnvs("breakout", 2, **options)
    once = play(envs, seed=2**40, num_steps=60)
    kept = [step.frames.copy() for step in once[1]]
    assert_same(once, play(envs, seed=2**40, num_steps=60))
    assert_same(once, play(AtariEnvs("breakout", 2, **options), seed=2**40, num_steps=60))
    for step, frames in zip(once[1], kept, strict=True):  # what was returned is not written again
        np.testing.assert_array_equal(step.frames, frames)
    other = play(envs, seed=1, num_steps=60)
    assert any((a.frames != b.frames).any() for a, b in zip(once[1], other[1], strict=True))


def test_atari_spec():
    spec = AtariEnvs("ALE/Pong-v5", 1).spec
    assert (spec.name, spec.family, spec.num_actions) == ("ALE/Pong-v5", "atari", 6)
    assert (spec.frame_shape, spec.frame_dtype, spec.frame_scale) == ((84, 84), "uint8", 255.0)
    assert (spec.stack, spec.frames_per_step, spec.observation_shape) == (4, 4, (84, 84, 4))
    assert AtariEnvs("pong", 1, full_action_space=True).spec.num_actions == 18


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"name": "ALE/Pongg-v5"}, r"env must be .* got 'ALE/Pongg-v5'; did you mean 'pong'\?"),
        ({"name": "SpaceInvader"}, r"did you mean 'space_invaders'"),
        ({"name": "CartPole-v1"}, r"env must be an Atari game such as 'pong' or 'ALE/Pong-v5', got 'CartPole-v1'"),
        ({"name": "combat"}, r"env must be an Atari game .* got 'combat'"),  # which needs two players
        ({"name": 3}, r"env must be .* got 3"),
        ({"num_envs": 0}, r"num_envs must be an integer >= 1, got 0"),
        ({"num_envs": True}, r"num_envs must be an integer >= 1, got True"),
        ({"sticky": 1.5}, r"sticky must be a probability in \[0, 1\], got 1.5"),
        ({"sticky": float("nan")}, r"sticky must be a probability in \[0, 1\], got nan"),
        ({"max_episode_frames": 0}, r"max_episode_frames must be an integer >= 1, got 0"),
        ({"noop_max": -1}, r"noop_max must be an integer >= 0, got -1"),
        ({"num_threads": 1.0}, r"num_threads must be an integer >= 0, got 1.0"),
    ],
)
def test_bad_arguments_of_atari(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        AtariEnvs(**({"name": "pong", "num_envs": 1} | arguments))


@pytest.mark.parametrize("make", [lambda: AtariEnvs("pong", 2), lambda: GymnasiumEnvs("Acrobot-v1", 2)])
def test_bad_calls(make):
    envs = make()
    most = envs.spec.num_actions
    with pytest.raises(ValueError, match=r"reset must be called before step"):
        envs.step(np.zeros(2, np.int32))
    with pytest.raises(ValueError, match=r"seed must be an integer >= 0, got -1"):
        envs.reset(-1)
    envs.reset(0)
    for actions in ([0, most], [-1, 0], [0], [0.0, 1.0]):
        with pytest.raises(ValueError, match=rf"actions must be 2 integers from 0 to {most - 1}, got \["):
            envs.step(np.array(actions))
    envs.close()
    envs.close()
    with pytest.raises(ValueError, match=r"closed"):
        envs.reset(0)


def test_cartpole_is_single_ones_stepped_by_hand():
    n, num_steps, limit = 3, 120, 15
    envs = GymnasiumEnvs("CartPole-v1", n, max_episode_steps=limit)
    once = play(envs, seed=4, num_steps=num_steps)
    assert_same(once, play(envs, seed=4, num_steps=num_steps))
    start, ours = once[0], stacked(once[1])
    assert_next_step_autoreset(ours)
    assert (ours.frames.dtype, ours.rewards.dtype) == (np.float32, np.float32)
    assert (ours.ended & ours.terminated).any()
    assert (ours.ended & ~ours.terminated).any()

    actions = np.random.default_rng(0).integers(0, 2, (num_steps, n), dtype=np.int32)
    for i, seed in enumerate(seeds_of(4, n)):
        twin = gymnasium.make("CartPole-v1", max_episode_steps=limit)
        np.testing.assert_array_equal(start[i], twin.reset(seed=seed)[0])
        ended = False
        for t, action in enumerate(actions[:, i]):
            if ended:
                expected = Step(twin.reset()[0], 0.0, False, False, True)
            else:
                frame, reward, terminated, truncated, _ = twin.step(action)
                expected = Step(frame, reward, terminated, terminated or truncated, False)
            ended = expected.ended
            for ours_t, theirs in zip(ours, expected, strict=True):
                np.testing.assert_array_equal(ours_t[t, i], theirs)
        twin.close()


def test_cartpole_time_limit_does_not_terminate():
    steps = stacked(play(GymnasiumEnvs("CartPole-v1", 2, max_episode_steps=5), num_steps=12)[1])
    assert np.flatnonzero(steps.ended[:, 1]).tolist() == [4, 10]
    assert not steps.terminated.any()


def test_frozen_lake_is_one_hot():
    envs = GymnasiumEnvs("FrozenLake-v1", 2, options={"is_slippery": False})
    assert (envs.spec.family, envs.spec.num_actions, envs.spec.frame_shape) == ("gymnasium", 4, (16,))
    np.testing.assert_array_equal(envs.reset(0), np.eye(16, dtype=np.float32)[[0, 0]])
    step = envs.step(np.array([1, 2]))  # down and right
    np.testing.assert_array_equal(step.frames, np.eye(16, dtype=np.float32)[[4, 1]])
    assert step.frames.dtype == np.float32
    step = envs.step(np.array([2, 1]))  # both into the hole
    np.testing.assert_array_equal(step.terminated, [True, True])


class Toy(gymnasium.Env):
    """Observes the largest value its space allows; the reward is the action as it arrived."""

    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observe(), {}

    def step(self, action):
        return self.observe(), float(action), False, False, {}

    def observe(self):
        space = self.observation_space
        if isinstance(space, Discrete):
            return space.start + space.n - 1
        assert isinstance(space, Box)
        return space.high


@pytest.fixture
def toy():
    gymnasium.register(TOY, entry_point=Toy)
    yield lambda observation, action, **more: GymnasiumEnvs(
        TOY, 2, options={"observation_space": observation, "action_space": action}, **more
    )
    gymnasium.registry.pop(TOY)


@pytest.mark.parametrize(
    ("space", "shape", "dtype", "scale", "largest"),
    [
        (Box(-1.0, 7.0, (3,), np.float64), (3,), "float32", 1.0, 7),
        (Box(0, 9, (3,), np.int32), (3,), "float32", 1.0, 9),
        (Box(0, 1, (2,), np.bool_), (2,), "float32", 1.0, 1),
        (Box(0, 255, (4,), np.uint8), (4,), "float32", 1.0, 255),
        (Box(0, 255, (40, 40, 3), np.uint8), (40, 40, 3), "uint8", 255.0, 255),
        (Box(0, 255, (40, 40), np.uint8), (40, 40, 1), "uint8", 255.0, 255),
        (Box(0.0, 2.0, (), np.float32), (1,), "float32", 1.0, 2),
    ],
)
def test_observations_of_gymnasium(toy, space, shape, dtype, scale, largest):
    envs = toy(space, Discrete(2))
    assert (envs.spec.frame_shape, envs.spec.frame_dtype, envs.spec.frame_scale) == (shape, dtype, scale)
    for frames in (envs.reset(0), envs.step(np.zeros(2, int)).frames):
        assert frames.dtype == dtype
        np.testing.assert_array_equal(frames, np.full((2, *shape), largest))


def test_spaces_that_do_not_start_at_zero(toy):
    envs = toy(Discrete(3, start=5), Discrete(4, start=-2), max_episode_steps=1)
    np.testing.assert_array_equal(envs.reset(0), [[0, 0, 1], [0, 0, 1]])
    step = envs.step(np.array([0, 3]))
    np.testing.assert_array_equal(step.rewards, [-2, 1])
    assert step.ended.all()
    assert not step.terminated.any()


@pytest.mark.parametrize("space", [MultiBinary(3), Dict({"a": Discrete(2)})])
def test_observations_a_network_cannot_be_given(toy, space):
    with pytest.raises(ValueError, match=r"Box or Discrete observations, got 'cramerl-tests/Toy-v0' with "):
        toy(space, Discrete(2))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"name": "Pendulum-v1"}, r"env must be an environment with Discrete actions, got 'Pendulum-v1' with Box\("),
        ({"name": "Blackjack-v1"}, r"with Box or Discrete observations, got 'Blackjack-v1' with Tuple\("),
        (
            {"name": "CartPole-v9"},
            r"env must be a Gymnasium id such as 'CartPole-v1', .* got 'CartPole-v9'; did you mean 'CartPole-v1'\?$",
        ),
        ({"name": "Nothing-v0"}, r"or an Atari game such as 'ALE/Pong-v5', got 'Nothing-v0'"),
        ({"name": "no such name"}, r"env must be .* got 'no such name'"),
        ({"name": "nomodule:Nothing-v0"}, r"env must be .* got 'nomodule:Nothing-v0': No module named 'nomodule'"),
        ({"name": None}, r"env must be .* got None"),
        ({"num_envs": 0}, r"num_envs must be an integer >= 1, got 0"),
        ({"max_episode_steps": 0}, r"max_episode_steps must be an integer >= 1, got 0"),
        (
            {"options": {"gravity": 3}},
            r"options must be arguments of 'CartPole-v1', got {'gravity': 3}: .*gravity",
        ),
        (
            {"name": "FrozenLake-v1", "options": {"map_name": "9x9"}, "max_episode_steps": 5},
            r"options must be arguments of 'FrozenLake-v1', got {'map_name': '9x9'}: KeyError: '9x9'",
        ),
        ({"options": {"max_episode_steps": 3}}, r"options must not contain max_episode_steps, which has an argument"),
    ],
)
def test_bad_arguments_of_gymnasium(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        GymnasiumEnvs(**({"name": "CartPole-v1", "num_envs": 2} | arguments))


def test_a_missing_library_is_named(monkeypatch):
    def missing(*_, **__):
        raise gymnasium.error.DependencyNotInstalled("Box2D is not installed")

    monkeypatch.setattr(gymnasium, "make_vec", missing)
    with pytest.raises(ValueError, match=r"libraries are installed, got 'LunarLander-v3': Box2D is not installed"):
        GymnasiumEnvs("LunarLander-v3", 1)
