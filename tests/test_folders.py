"""The folder of a run may come from somebody else: nothing outside it is touched, and nothing waits for ever."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import shutil
from pathlib import Path

import pytest
from commands import refused, run

import cramerl
from cramerl._folders import inside, open_inside, parse_json, read_inside
from cramerl.deep.checkpoint import CheckpointStore
from cramerl.runs.folder import RunFolder

SOURCE = Path(cramerl.__file__).parent
OPENERS = {
    "open",
    "fdopen",
    "read_text",
    "read_bytes",
    "write_bytes",
    "truncate",
    "safe_open",
    "load_file",
    "save_file",
}
BY_WHOLE_NAME = {
    *(f"np.{name}" for name in ("load", "loadtxt", "genfromtxt", "fromfile", "memmap")),
    *(f"shutil.{name}" for name in ("copy", "copy2", "copyfile", "copytree", "move")),
}
REMOVERS = {"unlink", "rmtree", "rmdir", "removedirs"}
WRITERS = {"write_json", "write_text", "write_whole", "write_durably", "make_durable_folder"}
FILES_OF_RUNS = ("cli", "deep", "evaluations", "evidence", "reports", "runs", "sweep", "watching")
FILES_OF_RUNS += ("demo.py", "linear/evaluation_file.py", "linear/logs/saved_evaluation.py")

# Every other place that opens, writes or removes a file, and why it may: the expression as it stands there.
ALLOWED = {
    "cli/evaluate.py": {"path.unlink()": "what was written beside a page of our own, and unlink follows no link"},
    "cli/child.py": {
        "shutil.rmtree(job.folder, ignore_errors=True)": "made by its own worker, and rmtree removes no link"
    },
    "cli/demo.py": {
        "_files.write_json(options.out / 'demo.json', demo.summary(result))": "the user named it",
        "RunFolder.open(folder)": "opens no file",
    },
    "cli/main.py": {"open(os.devnull, 'w')": "a device", "os.open(os.devnull, os.O_WRONLY)": "a device"},
    "cli/sweep.py": {
        "(folder / SEARCH).write_bytes(read_inside(options.out, SEARCH, most=LOG_BYTES))": "in a folder made for it"
    },
    "cli/train.py": {"file.open('rb')": "--config, which the user named"},
    "cli/verify.py": {"_files.write_text(Path(place), text)": "the user named it"},
    "deep/checkpoint.py": {
        "write_durably(temporary / STATE, state)": "in a folder that was made for it",
        "write_durably(temporary / MANIFEST, (json.dumps(manifest, indent=2) + '\\n').encode())": "as above",
        "write_durably(temporary, data)": "a name that write_whole gave",
        "write_whole(path, lambda temporary: write_durably(temporary, data))": "a path from inside",
        "path.unlink(missing_ok=True)": "a shard that was written just now",
        "path.unlink()": "a name of a shard, and unlink does not follow links",
        "shutil.rmtree(temporary, ignore_errors=True)": "rmtree removes no link",
        "shutil.rmtree(aside, ignore_errors=True)": "rmtree removes no link",
        "shutil.rmtree(path)": "after _is_checkpoint",
    },
    "evaluations/log_files.py": {
        "write_json(folder / EVALUATION_FILE, without_nan(content))": "the user named it",
        "model.read_bytes()": "written just now",
    },
    "evaluations/page.py": {"write_text(Path(folder) / PAGE, page)": "the user named it"},
    "evaluations/predictions.py": {
        "write_whole(path, lambda temporary: _write(temporary, tables()))": "the user named it"
    },
    "evaluations/processes.py": {
        "path.open('rb')": "--policy, which the user named",
        "np.loadtxt(file, delimiter=',')": "the same, which is open",
    },
    "evidence/published.py": {
        "files('cramerl.evidence').joinpath('published.json').read_text(encoding='utf-8')": "the package's own"
    },
    "linear/logs/saved_evaluation.py": {
        "write_whole(path, lambda temporary: np.savez(temporary, allow_pickle=False, about=text, **arrays))": "as above"
    },
    "reports/build.py": {
        "shutil.rmtree(build, ignore_errors=True)": "a folder that was made for it",
        "shutil.rmtree(old, ignore_errors=True)": "an earlier report, which was renamed to this",
        "plots.put_titles(path, figure.titles).read_text(encoding='utf-8')": "a figure drawn just now",
        "write_json(build / SCORES, content | ({'theory': to_json(claims)} if claims else {}))": "a new folder",
        "write_text(build / TABLES, to_markdown(sections, claims, processes))": "a new folder",
        "write_text(build / PAGE, to_html(sections, claims, processes))": "a new folder",
        "write_json(build / DOPAMINE / f'{stem}.json', rows)": "a new folder, and a safe name",
    },
    "runs/agents.py": {
        "write_whole(out / EXPORTED_WEIGHTS, lambda temporary: temporary.write_bytes(data))": "an empty folder",
        "temporary.write_bytes(data)": "a name that write_whole gave",
        "write_json(out / CONFIG, config.to_json())": "an empty folder",
        "write_text(out / CARD, card)": "an empty folder",
        "RunFolder.open(path)": "opens no file",
    },
    "runs/folder.py": {
        "left.unlink()": "a temporary name of our own, and unlink follows no link",
        "log.truncate(sizes.get(name, 0))": "opened by open_inside",
    },
    "runs/training.py": {"RunFolder.open(run_folders(run)[0])": "opens no file"},
    "sweep/folder.py": {"shutil.rmtree(path)": "after _require_run_files; rmtree removes no link and follows none"},
    "sweep/mirror.py": {"write_whole(path, write)": "a path from inside"},
    "sweep/ray.py": {
        "shutil.rmtree(left, ignore_errors=True)": "in a folder of this user alone",
        "shutil.rmtree(place, ignore_errors=True)": "a folder that was made for it",
    },
    "watching/page.py": {
        "write_text(Path(path), to_html(page_data(recording, highlight=highlight)))": "the user named it"
    },
    "watching/video.py": {
        "write_whole(path, lambda temporary: _write_mp4(temporary, frames, fps))": "the user named it",
        "write_whole(path, lambda temporary: _write_gif(temporary, frames, fps, recording.palette))": "likewise",
        "av.open(str(path), 'w', format='mp4', options={'movflags': 'faststart'})": "the user named it",
    },
}


def calls(file: Path) -> list[str]:
    """The calls in a module that open, write or remove a file by themselves."""
    found = []
    for node in ast.walk(ast.parse(file.read_text())):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        first = getattr(getattr(node.args[0], "func", None), "id", "") if node.args else ""
        whole = ast.unparse(node.func) in BY_WHOLE_NAME
        if whole or name in OPENERS | REMOVERS or (name in WRITERS and first != "inside"):
            found.append(ast.unparse(node))
    return found


def test_one_function_opens_the_files_of_runs_and_one_decides_their_names():
    others = {}
    for folder in FILES_OF_RUNS:
        for file in [SOURCE / folder] if folder.endswith(".py") else sorted((SOURCE / folder).rglob("*.py")):
            name = file.relative_to(SOURCE).as_posix()
            if new := [call for call in calls(file) if call not in ALLOWED.get(name, {})]:
                others[name] = new
    assert others == {}
    for name, allowed in ALLOWED.items():  # what is no longer there
        assert set(allowed) <= set(calls(SOURCE / name)), name


@pytest.mark.parametrize("name", ["", ".", "/etc/passwd", "../x", "a/../../x", "a/..", "link", "link/x", "a\0b"])
def test_names_that_leave_the_folder_are_refused(tmp_path, name):
    (tmp_path / "run/a").mkdir(parents=True)
    (tmp_path / "run/link").symlink_to(tmp_path)
    with pytest.raises(ValueError, match=r"that is not below it|is a link, and links"):
        inside(tmp_path / "run", name)


def test_the_folder_itself_may_be_a_link(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/x").write_text("words")
    (tmp_path / "link").symlink_to(tmp_path / "run")
    assert read_inside(tmp_path / "link", "x") == b"words"


def test_only_regular_files_of_a_bounded_size_are_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "second").hardlink_to(tmp_path / "file")
    for how in ("read", "append", "update"):
        for name in ("pipe", "folder"):
            with pytest.raises(ValueError, match="must be a regular file, it is a"):
                open_inside(tmp_path, name, how)
    with pytest.raises(ValueError, match="must have at most 4 bytes, it has 5"):
        open_inside(tmp_path, "file", most=4)
    assert read_inside(tmp_path, "file", most=5) == b"12345"
    for how in ("append", "update"):
        with pytest.raises(ValueError, match=r"file has 2 names \(hard links\), and writing would change all"):
            open_inside(tmp_path, "file", how)


def test_json_that_is_nested_too_deeply_is_a_value_error():
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json("[" * 100_000)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A run with a checkpoint from which it can be resumed."""
    folder = tmp_path_factory.mktemp("made") / "run"
    settings = ("--preset", "smoke", "--hidden-units", 8, "--num-atoms", 11, "--v-min", -10, "--v-max", 10)
    result = run("train", "s51", "CartPole-v1", *settings, "--steps", 400, "--iteration-steps", 400, "--out", folder)
    assert result.returncode == 0, result.stderr
    return folder


@pytest.fixture
def theirs(made, tmp_path) -> Path:
    """A copy of the run, as it may come from somebody else."""
    return shutil.copytree(made, tmp_path / "run")


def put_link(theirs: Path, name: str, target: Path) -> None:
    place = theirs / name
    if place.is_dir():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    place.symlink_to(target)


@pytest.mark.parametrize(
    "name",
    [
        *("config.json", "metrics.jsonl", "episodes.jsonl", "timing.jsonl", "weights.json", ".lock", "checkpoints"),
        *("checkpoints/replay", "checkpoints/000001"),
        *(f"checkpoints/000001/{file}" for file in ("state.safetensors", "manifest.json")),
    ],
)
def test_resume_changes_nothing_outside_through_a_link(theirs, tmp_path, name):
    outside = tmp_path / "outside"
    outside.mkdir()
    if (theirs / name).is_dir():
        shutil.copytree(theirs / name, outside, dirs_exist_ok=True)
        (outside / "202401").mkdir()
        (outside / "202401/photo.jpg").write_text("a picture")
        target = outside
    else:
        target = shutil.copy(theirs / name, outside / "file")
    put_link(theirs, name, target)
    before = {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()}
    sentence = refused("resume", theirs, "--steps", 800)
    assert "is a link, and links in such a folder are not followed" in sentence
    assert {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()} == before


def test_a_lock_keeps_what_its_file_holds(theirs):
    (theirs / ".lock").write_text("words")
    with RunFolder(theirs).locked():
        pass
    assert (theirs / ".lock").read_text() == "words"


def test_what_a_killed_process_half_wrote_is_removed(theirs, tmp_path):
    (tmp_path / "outside").write_text("mine")
    for name in (".weights-123.json", ".config-7.json", ".mine-1.json", ".weights-x.json"):
        (theirs / name).write_text("{")
    (theirs / ".versions-5.json").symlink_to(tmp_path / "outside")
    with RunFolder(theirs).locked():
        pass
    assert {path.name for path in theirs.glob(".*.json")} == {".mine-1.json", ".weights-x.json"}
    assert (tmp_path / "outside").read_text() == "mine"


def test_folders_that_are_no_checkpoints_of_ours_stay(theirs):
    photo = theirs / "checkpoints/20260101/photo.jpg"
    photo.parent.mkdir()
    photo.write_text("a picture")
    (theirs / "checkpoints/20260102").mkdir()
    (theirs / "checkpoints/replay/rows-and-columns.csv").write_text("mine")
    shutil.copytree(theirs / "checkpoints/000001", theirs / "checkpoints/20260103")
    (theirs / "checkpoints/20260103/mine.txt").write_text("mine")
    store = CheckpointStore(theirs / "checkpoints", keep=1)
    saved = store.latest()
    for iteration in (2, 3):
        store.save(saved.info | {"iteration": iteration, "rows": None}, saved.arrays)
    assert not (theirs / "checkpoints/000002").exists()
    assert photo.read_text() == "a picture"
    assert {path.name for path in (theirs / "checkpoints").glob("2026*")} == {"20260101", "20260102", "20260103"}
    assert (theirs / "checkpoints/replay/rows-and-columns.csv").exists()


@pytest.mark.parametrize("name", ["checkpoints/000001/manifest.json", "checkpoints/000001/state.safetensors"])
@pytest.mark.parametrize("command", ["play", "resume", "export"])
def test_a_pipe_in_the_place_of_a_file_is_refused(theirs, tmp_path, name, command):
    (theirs / name).unlink()
    os.mkfifo(theirs / name)
    more = ["--out", tmp_path / "out"] if command == "export" else []
    assert "must be a regular file, it is a pipe, a device or the like" in refused(command, theirs, *more)


def test_a_log_that_is_a_pipe_is_refused(theirs, tmp_path):
    (theirs / "metrics.jsonl").unlink()
    os.mkfifo(theirs / "metrics.jsonl")
    assert "must be a regular file" in refused("report", theirs, "--out", tmp_path / "out")


def seal(checkpoint: Path, **changes: object) -> None:
    """Alter a manifest, with the sum that it then has."""
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    state = (checkpoint / "state.safetensors").read_bytes()
    manifest["files"]["state.safetensors"] = {"bytes": len(state), "sha256": hashlib.sha256(state).hexdigest()}
    manifest |= changes
    del manifest["sha256"]
    digest = hashlib.sha256(json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    (checkpoint / "manifest.json").write_text(json.dumps(manifest | {"sha256": digest}))


@pytest.mark.parametrize(
    "changes",
    [
        {"info": {"iteration": 1}},
        {"info": {"iteration": 1, "rows": [0, 100], "step": "many", "diverged": 7, "settings": []}, "rows": [0, 100]},
        {"info": 3},
        {"files": {}},
        {"files": {"state.safetensors": "yes"}},
        {"rows": "all"},
        {
            "files": {
                "../../../../etc/passwd": {"bytes": 1, "sha256": "0"},
                "state.safetensors": {"bytes": 1, "sha256": ""},
            }
        },
        {"files": {"/dev/zero": {"bytes": 0, "sha256": "0"}, "state.safetensors": {"bytes": 0, "sha256": ""}}},
    ],
    ids=str,
)
@pytest.mark.parametrize("command", ["play", "resume", "export"])
def test_checkpoints_that_were_altered_with_right_sums_get_a_sentence(theirs, tmp_path, command, changes):
    seal(theirs / "checkpoints/000001", **changes)
    more = ["--out", tmp_path / "out"] if command == "export" else []
    assert re.search("cannot be (used|resumed)", refused(command, theirs, *more))


@pytest.mark.parametrize("content", [b"", b"x" * 100, b"\xff" * 8 + b"{}", (10).to_bytes(8, "little") + b'{"a":[1]} '])
@pytest.mark.parametrize("command", ["play", "resume"])
def test_arrays_that_are_none_get_a_sentence(theirs, command, content):
    (theirs / "checkpoints/000001/state.safetensors").write_bytes(content)
    seal(theirs / "checkpoints/000001")
    assert "state.safetensors holds no arrays" in refused(command, theirs)


@pytest.mark.parametrize("file", ["config.json", "checkpoints/000001/manifest.json", "environment.json"])
def test_json_that_is_too_deep_gets_a_sentence(theirs, file):
    (theirs / file).write_text("[" * 100_000)
    assert "nested too deeply" in refused("play", theirs)


@pytest.mark.parametrize(
    "row", ["[" * 100_000, '{"step": 1000000000000000000000000000000}', '{"step": true}', '{"step": -1}']
)
def test_lines_of_a_log_that_are_none_get_a_sentence(theirs, tmp_path, row):
    (theirs / "metrics.jsonl").write_text(row + "\n")
    assert "metrics.jsonl line 1 is not" in refused("report", theirs, "--out", tmp_path / "out")
