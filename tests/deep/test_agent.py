"""Trained agents: what they think, how they play, and their files."""

import json
import re
import shutil
import xml.etree.ElementTree as ET

import commands
import gymnasium
import jax
import numpy as np
import pytest
import safetensors.numpy
import yaml
from lenient import lenient
from untrained import small_config, write_untrained

import cramerl
from cramerl import Support
from cramerl.deep import replay as replays
from cramerl.deep.agent import play_episodes
from cramerl.deep.checkpoint import CheckpointStore
from cramerl.deep.envs.base import EnvSpec, FrameStack, Step
from cramerl.deep.heads import U51
from cramerl.deep.trees import weights_of
from cramerl.runs import build
from cramerl.runs.config import AGENTS, TrainConfig
from cramerl.runs.folder import load_config
from cramerl.runs.group import RunGroup
from cramerl.runs.presets import preset
from cramerl.runs.scores import tail_score
from cramerl.runs.trainer import Run

SPEC = EnvSpec("Toy", "gymnasium", 3, (4,), "float32")
TINY = {"steps": 240, "iteration_steps": 240, "log_steps": 80, "min_replay_steps": 80, "num_atoms": 5, "batch_size": 4}
TINY |= {"network": "linear", "max_episode_steps": 20, "v_min": 0.0, "v_max": 20.0}


def settings(**changes):
    return preset("smoke", "s51", "CartPole-v1", **{**TINY, **changes})


def train(folder, seeds=(0,), **changes):
    with lenient():
        return cramerl.train(RunGroup.of(settings(**changes), seed=seeds), out=folder)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train(tmp_path_factory.mktemp("runs") / "run").folder


@pytest.fixture(scope="module")
def exported(run, tmp_path_factory):
    out = tmp_path_factory.mktemp("exports") / "agent"
    written = cramerl.export_agent(run, out)
    assert [path.name for path in written] == ["model.safetensors", "config.json", "README.md"]
    return out


def small_agent(name="s51", spec=SPEC, **changes):
    config = TrainConfig(agent=name, num_atoms=5, hidden_units=(6,), network="mlp", **changes)
    params = build.make_learner(config, spec).network.init(jax.random.key(1))
    return build.make_agent(config, spec, params)


def arrays_of(tree):
    return {jax.tree_util.keystr(path): np.asarray(x) for path, x in jax.tree_util.tree_leaves_with_path(tree)}


def assert_same_weights(a, b):
    a, b = arrays_of(a), arrays_of(b)
    assert a.keys() == b.keys()
    for name, array in a.items():
        np.testing.assert_array_equal(array, b[name], name)


@pytest.mark.parametrize("name", AGENTS)
def test_what_an_agent_thinks(name, rng):
    agent = small_agent(name)
    observations = rng.normal(size=(7, 4)).astype(np.float32)
    outputs, values, (atoms, masses) = (
        agent.outputs(observations),
        agent.values(observations),
        agent.distributions(observations),
    )
    actions = agent.act(observations)
    size = {"dqn": 1, "u51": 4, "l51": 4}.get(name, 5)
    assert outputs.shape == (7, 3, size)
    assert values.shape == (7, 3)
    assert atoms.shape == masses.shape == (7, 3, 1 if name == "dqn" else 5)
    assert (actions.shape, actions.dtype) == ((7,), np.int32)
    np.testing.assert_array_equal(actions, values.argmax(axis=-1))
    missing = 1 - masses.sum(axis=-1, keepdims=True)
    if name != "s51":  # the paper's masses have any total; values are those of the distribution put right
        np.testing.assert_allclose(missing, 0, atol=1e-5)
    np.testing.assert_allclose(values, ((masses + missing / masses.shape[-1]) * atoms).sum(-1), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(outputs, agent.outputs(observations.tolist()))
    one = agent.values(observations[2:3])
    np.testing.assert_allclose(one, values[2:3], rtol=1e-5, atol=1e-6)


def test_agents_and_their_distributions_print_one_line(rng):
    agent = small_agent("s51")
    assert repr(agent) == "Agent(S51 on Toy, 3 actions)"
    found = agent.distributions(rng.normal(size=(7, 4)).astype(np.float32))
    low, high = agent.support.v_min, agent.support.v_max
    assert repr(found) == f"Distributions(7 observations x 3 actions x 5 atoms, from {low:.4g} to {high:.4g})"
    page = ET.fromstring(f"<div>{found._repr_html_()}</div>")
    assert len(list(page.iter("{http://www.w3.org/2000/svg}svg"))) == 4 * 3


def test_observations_of_another_shape():
    for shape in [(4,), (2, 5), (2, 4, 1)]:
        with pytest.raises(ValueError, match=r"^observations must have shape \(N, 4\), got \("):
            small_agent().act(np.zeros(shape, np.float32))


class Corridor:
    """Environments whose i-th has episodes of ``lengths[i]`` steps; a reward tells which one's it is."""

    def __init__(self, lengths):
        self.spec, self.num_envs, self.lengths = SPEC, len(lengths), np.array(lengths)
        self.taken = []

    def reset(self, seed):
        self.rng = np.random.default_rng(seed)
        self.at, self.episode, self.over = (np.zeros(self.num_envs, int) for _ in range(3))
        return self.frames()

    def frames(self):
        return self.rng.normal(size=(self.num_envs, 4)).astype(np.float32)

    def step(self, actions):
        self.taken.append(actions)
        first = self.over.astype(bool)
        self.episode += first
        self.at = np.where(first, 0, self.at + 1)
        ended = self.at == self.lengths
        self.over = ended
        rewards = np.where(first, 0, 100 * np.arange(self.num_envs) + 10 * self.episode + 1).astype(np.float32)
        return Step(self.frames(), rewards, ended, ended.copy(), first)

    def close(self):
        pass


def test_each_environment_has_its_share_of_episodes():
    envs = Corridor([2, 9, 3])
    played = play_episodes(small_agent(), envs, 7)
    # Three of the first, two of each of the others, however short the first one's are.
    assert [episode.length for episode in played] == [2, 2, 2, 9, 9, 3, 3]
    per_step = [1, 11, 21, 101, 111, 201, 211]
    assert [episode.score for episode in played] == [e.length * r for e, r in zip(played, per_step, strict=True)]
    assert len(envs.taken) == 9 + 1 + 9  # no longer than the slowest needs
    assert [e.length for e in play_episodes(small_agent(), Corridor([2, 9, 3]), 2)] == [2, 9]
    assert play_episodes(small_agent(), Corridor([2]), 0) == []


def test_epsilon_is_the_share_of_random_actions():
    agent = small_agent()
    for epsilon, low, high in [(0.0, 1.0, 1.0), (1.0, 0.23, 0.43), (0.5, 0.57, 0.77)]:
        envs, greedy = Corridor([40, 40]), []
        play_episodes(agent, envs, 10, epsilon=epsilon, on_step=lambda o, a, s, g=greedy: g.append(agent.act(o) == a))
        assert low <= np.mean(greedy) <= high
        taken = np.concatenate(envs.taken)
        assert taken.dtype == np.int32
        if epsilon == 1:
            assert np.bincount(taken, minlength=3).min() > len(taken) / 5


def test_the_seed_decides_everything_and_a_watcher_sees_it():
    with lenient():
        envs = build.make_envs(TrainConfig(env="CartPole-v1", max_episode_steps=25), 3)
        agent = small_agent(spec=envs.spec)

        def watched(seed):
            seen = []
            played = play_episodes(agent, envs, 8, epsilon=0.5, seed=seed, on_step=lambda *x: seen.append(x))
            return played, seen

        played, seen = watched(3)
        assert watched(3)[0] == played
        assert watched(4)[0] != played
        # The same by hand, from what the watcher saw: every step, also those that only start an episode.
        np.testing.assert_array_equal(seen[0][0], envs.reset(3))
    scores: list[list[tuple[float, int]]] = [[], [], []]
    total, length = np.zeros(3), np.zeros(3, int)
    for t, (observations, _, step) in enumerate(seen):
        if t:
            np.testing.assert_array_equal(observations, seen[t - 1][2].frames)
        for i in range(3):
            total[i] += step.rewards[i]
            length[i] += not step.first[i]
            if step.ended[i]:
                scores[i].append((total[i], length[i]))
                total[i] = length[i] = 0
    shares = [own[:n] for own, n in zip(scores, (3, 3, 2), strict=True)]
    assert [tuple(episode) for episode in played] == [episode for own in shares for episode in own]
    assert any(len(own) > len(share) for own, share in zip(scores, shares, strict=True)), "some played on uncounted"


@pytest.mark.parametrize("stack", [1, 3])
def test_stacks_are_those_of_the_replay(stack, rng):
    spec = EnvSpec("Toy", "atari", 2, (2, 3), "uint8", stack=stack)
    n, rows = 4, 30
    own, ring = FrameStack(spec, n), replays.empty_replay(8, n, spec.frame_shape, spec.frame_dtype)
    kept = []
    for row in range(rows):
        frames = rng.integers(1, 255, (n, 2, 3)).astype(np.uint8)
        first = (rng.random(n) < 0.25) | (row == 0)
        ring = replays.begin_row(ring, jax.numpy.int32(row), frames, first, np.zeros(n, bool))
        window = replays.observation_window(ring, jax.numpy.full(n, row), jax.numpy.arange(n), stack)
        ours = own.push(frames, first)
        assert (ours.shape, ours.dtype) == ((n, *spec.observation_shape), np.uint8)
        np.testing.assert_array_equal(ours, replays.read_observations(ring, window))
        kept.append((ours, ours.copy()))
    for ours, copy in kept:  # what was returned is not written again
        np.testing.assert_array_equal(ours, copy)


# Files.


def test_a_run_and_its_export_are_one_agent(run, exported, rng):
    first, second = cramerl.load_agent(run), cramerl.load_agent(exported)
    assert_same_weights(cramerl.load_agent(Run(run, 0, True, [])).params, first.params)
    assert first.spec == second.spec
    assert first.spec.name == "CartPole-v1"
    assert_same_weights(first.params, second.params)
    saved = CheckpointStore(run / "checkpoints").latest()
    assert saved is not None
    saved_weights = weights_of(saved.arrays)
    support = {name: saved_weights[f"support.{name}"] for name in ("low", "spacing")}
    assert_same_weights(first.params, {"outputs": {"weights": saved_weights["outputs.weights"]}, "support": support})
    assert first.support == Support.uniform(0, 20, 5)
    observations = rng.normal(size=(5, 4)).astype(np.float32)
    for ours, theirs in zip(first.distributions(observations), second.distributions(observations), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert load_config(run) == load_config(exported) == settings()
    cramerl.export_agent(exported, exported.parent / "again")
    assert_same_weights(cramerl.load_agent(exported.parent / "again").params, first.params)


def test_the_model_card(run, exported):
    card = (exported / "README.md").read_text()
    _, front, text = card.split("---\n", 2)
    assert yaml.safe_load(front) == {
        "library_name": "cramerl",
        "pipeline_tag": "reinforcement-learning",
        "tags": ["reinforcement-learning", "distributional", "s51", "CartPole-v1"],
    }
    weights = safetensors.numpy.load_file(exported / "model.safetensors")
    assert {name: array.shape for name, array in weights.items()} == {
        "outputs.weights": (4, 2 * 5),
        "support.low": (),
        "support.spacing": (),
    }
    assert "| parameters | 40 |" in text
    assert "# s51 on CartPole-v1\n" in text
    assert "| environment | CartPole-v1 (gymnax, 2 actions, observations (4,)) |" in text
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert (
        f"| mean return | {tail_score(rows).mean:.2f} (training episodes in the steps after 160, 240 in all) |" in text
    )
    for name, value in settings().to_json().items():
        assert f"| {name} | {value} |" in text


def test_an_id_with_a_colon_in_the_model_card(run, tmp_path):
    folder = shutil.copytree(run, tmp_path / "run")
    config = json.loads((folder / "config.json").read_text()) | {"env": "gym:CartPole-v1"}
    (folder / "config.json").write_text(json.dumps(config))
    cramerl.export_agent(folder, tmp_path / "out")
    front = (tmp_path / "out" / "README.md").read_text().split("---\n")[1]
    assert yaml.safe_load(front)["tags"][-1] in ("gym:CartPole-v1", "gym-CartPole-v1")


@pytest.mark.parametrize("source", ["run", "exported"])
def test_training_starts_from_given_weights(source, request, run, tmp_path):
    given = request.getfixturevalue(source)
    # Too short to learn anything.
    short = train(tmp_path / "short", steps=40, initial_weights=str(given)).folder
    assert_same_weights(cramerl.load_agent(short).params, cramerl.load_agent(run).params)
    assert load_config(short).initial_weights == str(given)


def test_weights_of_another_network_are_no_start(run, tmp_path):
    for changes, words in [({"num_atoms": 6}, "shape"), ({"network": "mlp"}, "no array named")]:
        with pytest.raises(ValueError, match=words):
            train(tmp_path / "run", initial_weights=str(run), **changes)
        assert not (tmp_path / "run").exists()


def test_a_support_that_is_not_that_of_the_weights_is_refused(run, tmp_path):
    with pytest.raises(ValueError, match=r"must be those of initial_weights, \[0, 20\], or none, got \[0, 30\]"):
        train(tmp_path / "other", initial_weights=str(run), v_max=30.0)
    assert not (tmp_path / "other").exists()


def test_scaled_modes_go_with_the_weights(tmp_path):
    """Through a group, an export and a new start, which must have the same modes."""
    own = {"v_min": None, "v_max": None, "network": "mlp", "hidden_units": (6,), "mode_exponent": 0.5}
    values = {**TINY, **own, "checkpoints": "weights"}
    with lenient():
        folder = cramerl.train("u51", "CartPole-v1", preset="smoke", out=tmp_path / "run", seed=[0, 1], **values).folder
    cramerl.export_agent(folder, tmp_path / "out", lane=1)
    loaded, exported = cramerl.load_agent(folder, lane=1), cramerl.load_agent(tmp_path / "out")
    assert isinstance(exported.head, U51)
    assert exported.head.mode_exponent == 0.5
    seen = np.zeros((1, 4), dtype=np.float32)
    for mine, theirs in zip(exported.distributions(seen), loaded.distributions(seen), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    start = {**values, "steps": 40, "initial_weights": str(tmp_path / "out")}
    with lenient():
        again = cramerl.train("u51", "CartPole-v1", preset="smoke", out=tmp_path / "again", **start).folder
        with pytest.raises(ValueError, match=r"^mode_exponent must be that of initial_weights, 0\.5, .* got 0$"):
            cramerl.train("u51", "CartPole-v1", preset="smoke", out=tmp_path / "no", **{**start, "mode_exponent": 0.0})
    assert_same_weights(cramerl.load_agent(again).params, exported.params)
    assert not (tmp_path / "no").exists()


def rewritten(folder, change):
    """Write the weights of an export anew."""
    file = folder / "model.safetensors"
    with safetensors.safe_open(file, framework="numpy") as tensors:
        record = tensors.metadata()
    weights, record = change(safetensors.numpy.load_file(file), record)
    file.write_bytes(safetensors.numpy.save(weights, metadata=record))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda w, r: ({"outputs.weights": w["outputs.weights"][:, :-1].copy()}, r), "shape"),
        (lambda w, r: ({"outputs.weights": w["outputs.weights"].astype(np.float64)}, r), "dtype"),
        (lambda w, r: ({}, r), "no array named"),
        (lambda w, r: ({**w, "more": np.zeros(2)}, r), "'more', which does not belong to it"),
        (lambda w, r: (w, {**r, "config": "{"}), "model.safetensors cannot be used: "),
        (lambda w, r: (w, {**r, "config": '{"batchsize": 3}'}), "'batchsize' is not a setting"),
        (lambda w, r: (w, {**r, "environment": "{}"}), "model.safetensors cannot be used: "),
        (lambda w, r: (w, None), "model.safetensors cannot be used: "),
    ],
)
def test_exports_that_cannot_be_used(change, words, exported, tmp_path):
    folder = shutil.copytree(exported, tmp_path / "agent")
    rewritten(folder, change)
    with pytest.raises(ValueError, match=words):
        cramerl.load_agent(folder)


@pytest.mark.parametrize("size", [0, 5, 100, -1])
def test_a_damaged_export(size, exported, tmp_path):
    folder = shutil.copytree(exported, tmp_path / "agent")
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(ValueError, match=r"model.safetensors cannot be used: "):
        cramerl.load_agent(folder)
    assert not (tmp_path / "out").exists()
    with pytest.raises(ValueError, match=r"model.safetensors cannot be used: "):
        cramerl.export_agent(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_folders_that_hold_no_agent(run, exported, tmp_path):
    with pytest.raises(ValueError, match=r"has no config.json"):
        cramerl.load_agent(tmp_path)
    with pytest.raises(ValueError, match=r"has no config.json"):
        load_config(tmp_path)
    with pytest.raises(ValueError, match=r"^out must be a new or empty folder, got "):
        cramerl.export_agent(run, exported)
    folder = shutil.copytree(run, tmp_path / "run")
    shutil.rmtree(folder / "checkpoints")
    with pytest.raises(
        ValueError, match="has no checkpoint, so there are no weights to load: none has been written yet"
    ):
        cramerl.load_agent(folder)


@pytest.fixture(scope="module")
def lanes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lanes")
    return {kind: train(folder / kind, seeds=(0, 1), checkpoints=kind).folder for kind in ("full", "weights")}


def test_the_first_of_two_lanes_is_exported(lanes, tmp_path):
    saved = CheckpointStore(lanes["full"] / "checkpoints").latest()
    assert saved is not None
    both = weights_of(saved.arrays)["outputs.weights"]
    assert both.shape == (2, 4, 10)
    assert (both[0] != both[1]).any()
    for kind, folder in lanes.items():
        cramerl.export_agent(folder, tmp_path / kind)
        for path in (folder, tmp_path / kind):
            np.testing.assert_array_equal(cramerl.load_agent(path).params["outputs"]["weights"], both[0])
    assert "| parameters | 40 |" in (tmp_path / "full" / "README.md").read_text()


@pytest.mark.parametrize("kind", ["full", "weights"])
def test_any_lane_can_be_taken(kind, lanes, tmp_path):
    saved = CheckpointStore(lanes["full"] / "checkpoints").latest()
    assert saved is not None
    second = weights_of(saved.arrays)["outputs.weights"][1]
    cramerl.export_agent(lanes[kind], tmp_path / "out", lane=1)
    for agent in (cramerl.load_agent(lanes[kind], lane=1), cramerl.load_agent(tmp_path / "out")):
        np.testing.assert_array_equal(agent.params["outputs"]["weights"], second)
    # Its settings are those of this lane alone, and so is its score.
    assert load_config(tmp_path / "out") == settings(seed=1, checkpoints=kind)
    row = json.loads((lanes[kind] / "metrics.jsonl").read_text().splitlines()[-1])
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"| mean return | {row['charts/episodic_return']:.2f} (" in card
    assert "| seed | 1 |" in card


@pytest.mark.parametrize("lane", [2, -1, True, 0.0, "1"])
def test_lanes_that_are_not_there(lane, lanes, tmp_path):
    sentence = f"lane must be one of 0 (seed 0), 1 (seed 1) in {lanes['full']}, got {lane!r}"
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        cramerl.load_agent(lanes["full"], lane=lane)
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        cramerl.export_agent(lanes["full"], tmp_path / "out", lane=lane)
    assert not (tmp_path / "out").exists()


def test_an_export_has_one_lane(exported):
    with pytest.raises(ValueError, match=r"^lane must be 0 for an export, which holds one agent, got 1$"):
        cramerl.load_agent(exported, lane=1)


def test_the_score_of_the_card_is_that_of_the_lane(lanes, tmp_path):
    rows = [json.loads(line) for line in (lanes["full"] / "metrics.jsonl").read_text().splitlines()]
    first, second = rows[-2:]
    assert (first["seed"], second["seed"]) == (0, 1)
    assert f"{first['charts/episodic_return']:.2f}" != f"{second['charts/episodic_return']:.2f}"
    cramerl.export_agent(lanes["full"], tmp_path / "out")
    assert f"| mean return | {first['charts/episodic_return']:.2f} (" in (tmp_path / "out" / "README.md").read_text()


class Endless(gymnasium.Env):
    """Gives a point for each step, without end."""

    observation_space, action_space = gymnasium.spaces.Box(0, 1, (2,)), gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 1.0, False, False, {}


def test_episodes_without_end_are_cut(tmp_path, monkeypatch):
    """In play and in evaluations, which say so; a time limit of the settings ends them as before."""
    gymnasium.register("Endless-v0", Endless)
    folder = write_untrained(tmp_path / "run", small_config(env="gym:Endless-v0"))
    result = commands.run("play", folder, "--episodes", 3, "--max-steps", 7)
    assert result.returncode == 0, result.stderr
    assert [line.split()[3] for line in result.stdout.splitlines()[:3]] == ["7.00"] * 3
    assert "3 of 3 episodes of gym:Endless-v0 did not end within 7 steps and were cut there" in result.stderr
    monkeypatch.setattr("cramerl.runs.evaluator.MOST_STEPS", 9)
    told = []
    config = small_config(env="gym:Endless-v0", steps=40, eval_episodes=2, iteration_steps=40, log_steps=40)
    with lenient():
        made = cramerl.train(config, tmp_path / "made", on_progress=lambda status: told.append(status.message or ""))
    assert [row["eval/episodic_length"] for row in made.rows if "eval/episodes" in row] == [9]
    assert any("2 of 2 episodes of gym:Endless-v0 did not end within 9 steps" in text for text in told)
    limited = write_untrained(tmp_path / "limited", small_config(env="gym:Endless-v0", max_episode_steps=12))
    result = commands.run("play", limited, "--episodes", 1)
    assert (result.stdout.split()[3], "did not end" in result.stderr) == ("12.00", False)
    gymnasium.registry.pop("Endless-v0")
