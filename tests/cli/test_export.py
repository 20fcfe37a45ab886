"""`cramerl export`: the files of an agent that can be shared."""

import pytest
from commands import refused, run_process
from untrained import small_config, write_untrained


def test_an_export_names_its_files(tmp_path):
    run, out = write_untrained(tmp_path / "run", small_config()), tmp_path / "agent"
    exported = run_process("export", run, "--out", out)
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
