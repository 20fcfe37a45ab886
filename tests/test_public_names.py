"""What the package exports. Import directions are checked by import-linter (pyproject.toml)."""

import types

import cramerl


def test_the_public_names_are_what_the_package_lists():
    assert sorted(cramerl.__all__) == cramerl.__all__
    for name in cramerl.__all__:
        assert getattr(cramerl, name).__doc__, f"{name} has no docstring"
    for name in cramerl._LAZY:
        assert getattr(cramerl, name).__doc__, f"{name} has no docstring"
    found = {n for n, v in vars(cramerl).items() if not n.startswith("_") and not isinstance(v, types.ModuleType)}
    assert found == {*cramerl.__all__, *cramerl._LAZY}
