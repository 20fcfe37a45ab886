"""`cramerl export`: the files of an agent that can be shared."""

import pytest
import safetensors
from commands import refused, run, run_process
from untrained import small_config, write_untrained


def test_an_export_names_its_files(tmp_path):
    folder, out = write_untrained(tmp_path / "run", small_config()), tmp_path / "agent"
    exported = run_process("export", folder, "--out", out)
    assert exported.returncode == 0, exported.stderr
    names = {"config.json", "model.safetensors", "README.md"}
    assert set(exported.stdout.splitlines()) == {f"wrote {out / name}" for name in names}
    assert {path.name for path in out.iterdir()} == names


@pytest.mark.parametrize(
    ("arguments", "sentence"), [([], "required: --out"), (["--out", "there"], "nowhere has no config.json")]
)
def test_bad_input(arguments, sentence, tmp_path):
    assert sentence in refused("export", "nowhere", *arguments, cwd=tmp_path)
    assert not list(tmp_path.iterdir())


def test_two_exports_of_an_agent_are_the_same_bytes(tmp_path):
    folder = write_untrained(tmp_path / "run", small_config())
    for number in range(4):  # safetensors writes its metadata in an order of chance
        run("export", folder, "--out", tmp_path / f"{number}")
    assert len({(tmp_path / f"{number}/model.safetensors").read_bytes() for number in range(4)}) == 1
    with safetensors.safe_open(tmp_path / "0/model.safetensors", framework="numpy") as file:
        assert file.metadata()["cramerl-agent"] == "2"
