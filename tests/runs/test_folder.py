"""The folder of a run: what is written there, and reading it back, also after a crash."""

import json
import re

import jax
import numpy as np
import pytest

import cramerl
from cramerl.deep.envs.base import EnvSpec
from cramerl.runs import folder
from cramerl.runs.config import TrainConfig
from cramerl.runs.folder import EPISODES, METRICS, RunFolder, load_config, versions
from cramerl.runs.group import RunGroup, as_group

SPEC = EnvSpec("Toy-v0", "gymnasium", 3, (4, 5), "uint8", stack=2, frame_scale=255.0, frames_per_step=4)
CONFIG = TrainConfig(env="Toy-v0", agent="u51", seed=7, hidden_units=(3, 4))


@pytest.fixture
def run(tmp_path):
    return RunFolder.create(as_group(CONFIG), SPEC, tmp_path / "deep" / "run")


def test_what_was_created_is_opened(run):
    again = RunFolder.open(run.path)
    assert again.group == run.group == as_group(CONFIG)
    assert again.spec == run.spec == SPEC
    assert isinstance(again.spec, EnvSpec)
    assert again.spec.observation_shape == (4, 5, 2)
    assert sorted(path.name for path in run.path.iterdir()) == ["config.json", "environment.json", "versions.json"]
    assert list(again.metrics()) == []
    assert again.log_sizes() == again.log_sizes(settle=True) == {METRICS: 0, EPISODES: 0}


def test_the_same_settings_write_the_same_bytes(run, tmp_path):
    other = RunFolder.create(as_group(CONFIG), SPEC, tmp_path / "other")
    rows = [{"step": 4, "losses/loss": 0.1 + 0.2, "seed": 0}, {"step": 8, "losses/loss": 1e-9}]
    run.append_metrics(rows)
    for row in rows:
        other.append_metrics([row])
    for path in run.path.iterdir():
        assert path.read_bytes() == (other.path / path.name).read_bytes(), path.name
    assert (run.path / "metrics.jsonl").read_bytes() == (
        b'{"step": 4, "losses/loss": 0.30000000000000004, "seed": 0}\n{"step": 8, "losses/loss": 1e-09}\n'
    )
    assert json.loads((run.path / "config.json").read_bytes()) == CONFIG.to_json()


def test_versions_are_those_the_run_depends_on(run):
    found = json.loads((run.path / "versions.json").read_text())
    assert found == versions()
    assert found["cramerl"] == cramerl.__version__
    assert found["numpy"] == np.__version__
    assert re.fullmatch(r"3\.\d+\.\d+\S*", found["python"])
    assert {"jax", "jaxlib", "optax", "gymnax", "ale-py", "gymnasium", "safetensors", "machine"} <= set(found)
    assert re.match(r"(cpu|gpu|tpu): ", found["device"])
    assert found["matmul_precision"].startswith("default")


def test_precision_and_flags_of_the_compiler_are_recorded(monkeypatch):
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE", raising=False)
    monkeypatch.setenv("XLA_FLAGS", " --xla_cpu_enable_fast_math=false ")
    with jax.default_matmul_precision("highest"):
        found = versions()
    assert found["matmul_precision"] == "highest"
    assert found["XLA_FLAGS"] == "--xla_cpu_enable_fast_math=false"
    assert "NVIDIA_TF32_OVERRIDE" not in found
    monkeypatch.setenv("XLA_FLAGS", "")
    assert "XLA_FLAGS" not in versions()


@pytest.mark.parametrize(("platform", "word"), [("cpu", "float32"), ("gpu", "TF32"), ("tpu", "bfloat16")])
def test_a_precision_that_is_not_set_is_said_in_words(platform, word):
    assert word in folder._matmul_precision(None, platform)
    assert folder._matmul_precision("float32", platform) == "float32"


@pytest.mark.parametrize(
    ("env", "name"), [("gym:CartPole-v1", "gym-CartPole-v1"), ("ALE/Pong-v5", "ALE-Pong-v5"), ("pong", "pong")]
)
def test_the_name_of_a_folder(env, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = TrainConfig(env=env, agent="c51", seed=3)
    runs = [RunFolder.create(as_group(config), SPEC) for _ in range(2)]
    assert len({run.path for run in runs}) == 2
    for run in runs:
        assert run.path.parent.resolve() == tmp_path / "runs"
        assert re.fullmatch(rf"{name}__c51__3__\d{{8}}-\d{{6}}-\d{{6}}", run.path.name)
        assert run.group.first == config


def test_an_empty_folder_will_do(tmp_path):
    assert RunFolder.create(as_group(CONFIG), SPEC, tmp_path).path == tmp_path


def test_a_folder_in_use_is_left_alone(run, tmp_path):
    file = tmp_path / "file"
    file.write_text("mine")
    before = {path: path.read_bytes() for path in run.path.iterdir()}
    continued = f"to continue its run: cramerl resume {run.path}; to train another, choose another folder"
    taken = {run.path: f"exists and is not empty; {continued}", file: "is a file"}
    for path, why in taken.items():
        with pytest.raises(ValueError) as caught:
            RunFolder.create(as_group(TrainConfig()), SPEC, path)
        assert str(caught.value) == (f"out must be a new or empty folder, {path} {why}")
    assert {path: path.read_bytes() for path in run.path.iterdir()} == before
    assert file.read_text() == "mine"


@pytest.mark.parametrize("name", ["config.json", "environment.json"])
def test_folders_that_are_no_runs(name, run, tmp_path):
    (run.path / name).unlink()
    with pytest.raises(ValueError, match=rf"^run must be a folder made by cramerl train, .* has no {name}(; to .*)?$"):
        RunFolder.open(run.path)
    with pytest.raises(ValueError, match=r"nowhere has no config.json$"):
        RunFolder.open(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "Expecting property name"),
        ("", "Expecting value"),
        ("[1]", "it must contain an object, got list"),
        ('{"batchsize": 3}', "'batchsize' is not a setting; did you mean 'batch_size'?"),
        ('{"steps": 0}', "steps must be an integer >= 1 and <= 2147483647, got 0"),
        (b"\xff\xfe", "can't decode"),
    ],
)
def test_settings_that_cannot_be_used(content, words, run):
    file = run.path / "config.json"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=rf"^{re.escape(str(file))} cannot be used: .*{re.escape(words)}"):
        _ = run.group


@pytest.mark.parametrize(
    ("content", "words"),
    [("{}", "frame_shape"), ('{"frame_shape": [1]}', "missing"), ('{"frame_shape": 1}', "iterable")],
)
def test_environments_that_cannot_be_used(content, words, run):
    file = run.path / "environment.json"
    file.write_text(content)
    with pytest.raises(ValueError, match=rf"^{re.escape(str(file))} cannot be used: .*{words}"):
        _ = run.spec


def test_other_settings_can_be_written(run):
    other = TrainConfig(env="Toy-v0", steps=5)
    run.change_group(as_group(other))
    assert RunFolder.open(run.path).group.first == other


def test_lines_are_added_and_read(run):
    run.append_metrics([{"step": 1}])
    run.append_metrics([])
    run.append_metrics([{"step": 2, "word": "Cramér"}, {"step": 3}])
    assert list(run.metrics()) == [{"step": 1}, {"step": 2, "word": "Cramér"}, {"step": 3}]
    run.append_episodes(["1\n", "2\n"])
    assert run.log_sizes() == {METRICS: (run.path / "metrics.jsonl").stat().st_size, EPISODES: 4}
    run.append_timing([{"step": 1, "charts/SPS": 2.5}])
    assert (run.path / "timing.jsonl").read_text() == '{"step": 1, "charts/SPS": 2.5}\n'


def test_a_number_that_is_no_json_writes_nothing(run):
    run.append_metrics([{"step": 1}])
    with pytest.raises(ValueError):
        run.append_metrics([{"step": 2}, {"step": 3, "loss": float("nan")}])
    assert list(run.metrics()) == [{"step": 1}]


def test_a_line_cut_short_is_left_out(run):
    run.append_metrics([{"step": step, "loss": 0.5} for step in range(3)])
    file = run.path / "metrics.jsonl"
    whole = file.read_bytes()
    ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
    for size in range(len(whole) + 1):
        file.write_bytes(whole[:size])
        assert len(list(run.metrics())) == sum(end <= size for end in ends)


def test_a_line_that_is_no_json_is_named(run):
    run.append_metrics([{"step": 1}])
    file = run.path / "metrics.jsonl"
    with file.open("a") as lines:
        lines.write('{"step": 2,\n{"step": 3}\n')
    with pytest.raises(ValueError, match=rf"^{re.escape(str(file))} line 2 is not JSON: "):
        list(run.metrics())


def test_what_came_after_a_checkpoint_is_forgotten(run):
    run.cut_logs({})
    run.append_metrics([{"step": 1}])
    run.append_episodes(["1\n"])
    sizes = run.log_sizes()
    run.append_metrics([{"step": 2}])
    run.append_episodes(["2\n"])
    for _ in range(2):
        run.cut_logs(sizes)
        assert list(run.metrics()) == [{"step": 1}]
        assert (run.path / EPISODES).read_text() == "1\n"
    run.append_metrics([{"step": 5}])
    assert list(run.metrics()) == [{"step": 1}, {"step": 5}]
    run.cut_logs({})
    assert list(run.metrics()) == []
    assert (run.path / EPISODES).read_text() == ""


@pytest.mark.parametrize("name", [METRICS, EPISODES])
def test_a_log_shorter_than_a_checkpoint_says(name, run):
    sentence = name + r" is shorter than the checkpoint says \({} < 500 bytes\)$"
    with pytest.raises(ValueError, match=sentence.format(0)):
        run.cut_logs({name: 500})
    run.append_metrics([{"step": 1}])
    run.append_episodes(["eleven more\n"])
    with pytest.raises(ValueError, match=sentence.format(12)):
        run.cut_logs({name: 500})
    assert list(run.metrics()) == [{"step": 1}]
    assert (run.path / EPISODES).read_text() == "eleven more\n"


def test_weights_are_described_for_each_lane(run):
    lanes = [{"learning_rate": rate, "seed": 7} for rate in (1e-3, 1e-2, 1e-1)]
    arrays = [{"conv1.bias": np.array([3.0, 4.0]) * factor, "w": np.ones((2, 3))} for factor in (1, 2, 3)]
    arrays[1]["w"][0, 0] = np.nan
    arrays[2]["w"] = np.full((2, 3), 1e30, np.float32)  # whose squares overflow
    with np.errstate(over="ignore"):
        run.describe_weights(40, lanes, arrays, diverged={1})
    found = json.loads((run.path / "weights.json").read_text(), parse_constant=pytest.fail)
    assert found == {
        "step": 40,
        "shapes": {"conv1/bias": "2", "w": "2x3"},
        "norms": [
            {"learning_rate": 1e-3, "seed": 7, "conv1/bias": 5.0, "w": 2.44949},
            {"learning_rate": 1e-2, "seed": 7, "conv1/bias": None, "w": None},
            {"learning_rate": 1e-1, "seed": 7, "conv1/bias": 15.0, "w": None},
        ],
    }


def test_settings_of_one_run_of_a_group(tmp_path):
    folder = RunFolder.create(RunGroup.of(CONFIG, seed=[3, 4]), SPEC, tmp_path / "group")
    assert [load_config(folder.path, lane).seed for lane in (0, 1)] == [3, 4]
    assert load_config(folder.path) == folder.group.first
    for lane in (2, -1, True, "0"):
        with pytest.raises(ValueError, match=r"lane must be one of 0 \(seed 3\), 1 \(seed 4\) in .*, got"):
            load_config(folder.path, lane)


@pytest.mark.parametrize("killed_at", range(8))
def test_a_folder_that_was_half_made_is_taken_up(killed_at, tmp_path, monkeypatch):
    """The process ends at any of the steps between the folder and its config.json."""
    path, steps = tmp_path / "run", iter(range(10**6))

    def step(real):
        def stepped(*arguments, **options):
            if next(steps) == killed_at:
                raise KeyboardInterrupt
            return real(*arguments, **options)

        return stepped

    for name in ("write_text", "replace", "mkdir"):
        monkeypatch.setattr(folder.Path, name, step(getattr(folder.Path, name)))
    monkeypatch.setattr(
        folder.Path, "unlink", lambda self, missing_ok=False: None
    )  # a killed process cleans up nothing
    try:
        RunFolder.create(as_group(CONFIG), SPEC, path)
    except KeyboardInterrupt:
        assert not (path / "config.json").exists()
    monkeypatch.undo()
    if not (path / "config.json").exists():
        if path.exists() and list(path.iterdir()):
            for use in (RunFolder.open, load_config):
                with pytest.raises(ValueError, match=r"has no config.json; to begin one: cramerl train"):
                    use(path)
        RunFolder.create(as_group(CONFIG), SPEC, path)
    assert sorted(entry.name for entry in path.iterdir()) == ["config.json", "environment.json", "versions.json"]


def test_a_folder_with_anything_else_is_not_taken_up(tmp_path):
    (tmp_path / "versions.json").write_text("{}")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"^out must be a new or empty folder"):
        RunFolder.create(as_group(CONFIG), SPEC, tmp_path)
    assert (tmp_path / "versions.json").read_text() == "{}"
