"""Copies of job folders in a storage: whole or not there, whoever uploads, and whatever interrupts it."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest
from sweep_folders import put_run

from cramerl.runs.presets import preset
from cramerl.sweep.folder import inspect_run
from cramerl.sweep.mirror import Mirror, open_storage, require_writable, stored_jobs

pytest.importorskip("fsspec")


def a_run(folder: Path, step: int = 500) -> Path:
    """The folder of a run with a checkpoint, and a log beside it."""
    shutil.rmtree(folder, ignore_errors=True)
    put_run(folder.parent, folder.name, preset("smoke", "dqn", "pong"), step)
    (folder / "checkpoints" / "000001" / "state.safetensors").write_bytes(bytes([step % 251]) * 1000)
    (folder / ".lock").touch()
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("[!.]*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def mirror(bucket: Path, folder: Path) -> Mirror:
    return Mirror(f"file://{bucket}/pong/x", folder, folder.with_suffix(".log"))


class Killed(Exception):
    """The process is killed here."""


def test_an_upload_that_is_interrupted_anywhere_leaves_the_last_snapshot_intact(tmp_path, monkeypatch):
    """Whichever write to the storage is the last one, half done or not done, the run can be downloaded."""
    import fsspec.implementations.local as local

    writes, last = [0], [10**9]
    for name in ("pipe_file", "put_file"):
        real = getattr(local.LocalFileSystem, name)

        def limited(self, one, two, *rest, real=real, name=name, **options):
            writes[0] += 1
            if writes[0] > last[0]:
                Path(one if name == "pipe_file" else two).write_bytes(b'{"config.js')
                raise Killed
            return real(self, one, two, *rest, **options)

        monkeypatch.setattr(local.LocalFileSystem, name, limited)
    number, expected, second = -1, {}, {"": b""}
    while expected != second:
        number += 1
        bucket, run, last[0] = tmp_path / f"bucket-{number}", tmp_path / "run", 10**9
        first = contents(a_run(run, 500))
        mirror(bucket, run).upload()
        second = contents(a_run(run, 600))
        writes[0], last[0] = 0, number
        try:
            mirror(bucket, run).upload()
            expected = second
        except Killed:
            expected = first
        last[0] = 10**9
        back = tmp_path / f"back-{number}"
        assert mirror(bucket, back).download(checkpoints=True)
        assert contents(back) == expected
        # The next process continues as if nothing had happened.
        mirror(bucket, a_run(run, 700)).upload()
        assert mirror(bucket, back).download(checkpoints=True)
        assert contents(back) == contents(run)
    assert number == 3  # metrics, state and the snapshot


def test_two_processes_that_upload_at_once_do_not_harm_each_other(tmp_path):
    """One was given up for lost, but continues; the snapshot with the most steps counts."""
    first, second = (mirror(tmp_path / "bucket", tmp_path / name) for name in ("first", "second"))
    for step in range(600, 1000, 100):
        a_run(tmp_path / "first", step - 100)
        a_run(tmp_path / "second", step)
        second.upload()
        first.upload()
        assert first.step() == step
        back = mirror(tmp_path / "bucket", tmp_path / "back")
        assert back.download(checkpoints=True)
        assert contents(tmp_path / "back") == contents(tmp_path / "second")


def test_two_snapshots_are_kept_and_a_damaged_one_is_passed_over(tmp_path):
    run, here = tmp_path / "run", mirror(tmp_path / "bucket", tmp_path / "run")
    for step in range(500, 1200, 100):
        a_run(run, step)
        (tmp_path / "run.log").write_text(f"step {step}\n")
        here.upload()
    stored = tmp_path / "bucket/pong/x"
    assert len(list((stored / "snapshots").iterdir())) == 2
    # Two versions of what changes (metrics, state, log), one of the rest (settings, manifest).
    assert len(list((stored / "files").iterdir())) == 2 * 3 + 2
    for file in (stored / "files").iterdir():
        if file.read_bytes() == (run / "checkpoints/000001/state.safetensors").read_bytes():
            file.write_bytes(b"x" * 1000)
    back = mirror(tmp_path / "bucket", tmp_path / "back")
    assert back.download(checkpoints=True)
    assert inspect_run(tmp_path / "back").step == 1000
    assert (tmp_path / "back.log").read_text() == "step 1000\n"
    shutil.rmtree(stored / "files")
    with pytest.raises(OSError, match=r"bucket/pong/x holds no snapshot that can be used: "):
        mirror(tmp_path / "bucket", tmp_path / "again").download(checkpoints=True)
    assert not mirror(tmp_path / "empty", tmp_path / "back").download(checkpoints=True)


def test_the_side_with_more_steps_counts(tmp_path):
    folder, there = tmp_path / "out/pong/x", tmp_path / "there"
    here = mirror(tmp_path / "bucket", a_run(folder, 500))
    here.synchronise(checkpoints=False)
    assert stored_jobs(f"file://{tmp_path}/bucket") == ["pong/x"]
    mirror(tmp_path / "bucket", a_run(there, 800)).upload()
    here.synchronise(checkpoints=False)
    assert inspect_run(folder).step == 800
    a_run(folder, 900)  # by `cramerl resume`
    here.synchronise(checkpoints=False)
    assert here.step() == 900
    # Records without checkpoints are only a copy.
    shutil.rmtree(a_run(folder, 1000) / "checkpoints")
    here.synchronise(checkpoints=False)
    assert (inspect_run(folder).step, inspect_run(folder).has_checkpoint) == (900, False)
    here.download(checkpoints=True)
    assert inspect_run(folder).has_checkpoint


@pytest.mark.parametrize("url", ["", "s3://", "file://", "file:///", "relative/path", "/"])
def test_a_url_without_a_folder_is_refused(url):
    with pytest.raises(ValueError, match="storage must be a URL with a folder, such as s3://bucket/runs"):
        open_storage(url)


def test_a_place_that_cannot_be_used_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"^storage must be a place that every machine reaches, got 'memory://x', wh"):
        open_storage("memory://x")
    with pytest.raises(ValueError, match=r"^storage must be a URL that fsspec knows, got 'nope://x': "):
        open_storage("nope://x")
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(ValueError, match=r"storage must be a place that can be written to, got 'file://.*/file'"):
        require_writable(f"file://{tmp_path}/file")
    require_writable(f"file://{tmp_path}/bucket")
    assert not list((tmp_path / "bucket").iterdir())


def tamper(stored: Path, name: str, data: bytes) -> None:
    """Add a file to the newest snapshot, as anybody can who may write to the storage."""
    digest = hashlib.sha256(data).hexdigest()
    (stored / "files" / digest).write_bytes(data)
    newest = max((stored / "snapshots").iterdir())
    newest.write_text(json.dumps(json.loads(newest.read_text()) | {name: digest}))


@pytest.mark.parametrize(
    "name",
    ["../../bashrc", "/{home}/bashrc", "checkpoints/../../bashrc", "checkpoints/home/bashrc", "bashrc", "", ".lock"],
)
def test_a_name_in_a_storage_that_leaves_the_folder_is_refused_before_anything_is_written(tmp_path, name):
    mirror(tmp_path / "bucket", a_run(tmp_path / "run")).upload()
    tamper(tmp_path / "bucket/pong/x", name.format(home=tmp_path), b"echo PWNED")
    back, home = tmp_path / "back", tmp_path / "home"
    home.mkdir()
    (back / "checkpoints").mkdir(parents=True)
    (back / "checkpoints/home").symlink_to(home)
    with pytest.raises(OSError, match=r"snapshot 0.* is refused: "):
        mirror(tmp_path / "bucket", back).download(checkpoints=True)
    assert [*home.iterdir(), *tmp_path.glob("bashrc"), *tmp_path.parent.glob("bashrc")] == []
    assert [path.name for path in back.iterdir()] == ["checkpoints"]


def test_a_link_is_not_uploaded_because_its_target_would_be(tmp_path):
    (tmp_path / "secret").write_text("of the user")
    (a_run(tmp_path / "run") / "weights.json").symlink_to(tmp_path / "secret")
    with pytest.raises(ValueError, match=r"weights.json is a link, and links in such a folder are not followed"):
        mirror(tmp_path / "bucket", tmp_path / "run").upload()
    assert not list(tmp_path.glob("bucket/pong/x/files/*"))


def test_a_job_whose_name_in_the_storage_leaves_the_sweep_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"names a file that is not below it: '../x'"):
        Mirror.of_job(f"file://{tmp_path}/bucket", tmp_path / "out", "../x")


def test_files_of_other_names_in_a_storage_do_not_count(tmp_path):
    """A storage may be shared, and a list of it is sorted by name."""
    here = mirror(tmp_path / "bucket", a_run(tmp_path / "run"))
    here.upload()
    for name in ("zzz.json", "999999999999-x-1.json", ".hidden", "9"):
        for folder in ("snapshots", "files"):
            (tmp_path / "bucket/pong/x" / folder / name).write_text("theirs")
    assert here.step() == 500
    here.upload()
    assert mirror(tmp_path / "bucket", tmp_path / "back").download(checkpoints=True)
    assert len(list((tmp_path / "bucket/pong/x").rglob("*zzz.json"))) == 2
