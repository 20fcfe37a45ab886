"""The house: every module has its place in this list, and imports only what stands above it."""

import ast
from pathlib import Path

import pytest

import cramerl

ROOT = Path(cramerl.__file__).parent
HOUSE = [
    *("_files", "_ray", "_arrays", "supports", "_checks", "measures", "cramer", "projections", "losses"),
    *(
        "linear.stationary",
        "linear.operators",
        "linear.inputs",
        "linear.processes",
        "linear.features",
        "linear.examples",
        "linear.reference",
    ),
    *(
        "linear.whitening",
        "linear.moments",
        "linear.systems",
        "linear.solve",
        "linear.certificates",
        "linear.evaluation",
        "linear.td",
        "linear.rows",
        "linear.support_choice",
        "linear.samples",
        "linear.lstd",
    ),
    *("linear.parquet", "linear.logs", "linear.ray_logs", "linear.claims"),
    *("deep.heads", "deep.networks", "deep.replay", "deep.learner", "deep.totals", "deep.envs", "deep.schedule"),
    *(
        "deep.compiling",
        "deep.env_group",
        "deep.native_loop",
        "deep.host_loop",
        "deep.trees",
        "deep.checkpoint",
        "deep.agent",
    ),
    *(
        "study.config",
        "study.lanes",
        "study.presets",
        "study.records",
        "study.building",
        "study.agents",
        "study.loggers",
        "study.interrupts",
        "study.training",
        "study.progress",
    ),
    *("study.statistics", "study.protocols", "study.anchors", "study.curves", "study.exports", "study.summaries"),
    *("study.plots", "study.report_tables", "study.report_settings", "study.report_values", "study.report_figures"),
    *("study.report_page", "study.report"),
    *("study.sweep_plan", "study.sweep", "study.sweep_choice", "study.sweep_run", "study.sweep_display"),
    *("study.sweep_storage", "study.sweep_worker", "study.sweep_ray", "study.sweep_search"),
    *("study.watch", "study.evaluations", "study.demo", "study.demo_agents"),
    *("study.report_laws", "study.report_scenes"),
    *("cli_agents", "cli_report", "cli_sweep_ray", "cli_sweep_search", "cli_sweep", "cli_watch", "cli", "cli_child"),
]
MODULES = sorted(p for p in ROOT.rglob("*.py") if p.name != "__init__.py")
HEAVY = {
    "jax",
    "jaxlib",
    "torch",
    "matplotlib",
    "ray",
    "gymnasium",
    "gymnax",
    "ale_py",
    "flax",
    "optax",
    "rich",
    "tensorboardX",
}


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def place(name: str) -> int:
    """Index in the list; a module of a folder that is one entry (deep.envs) stands where its folder stands."""
    for i, entry in enumerate(HOUSE):
        if name == entry or name.startswith(entry + "."):
            return i
    raise AssertionError(f"{name} has no place in the house: add it to HOUSE and to the table in README.md")


def imports(path: Path, *, top_level: bool = False) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = set()
    for node in tree.body if top_level else ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: relative imports hide the direction"
            found.add(node.module or "")
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def own_modules(names: set[str]) -> set[str]:
    known = {module_name(p) for p in MODULES}
    return {name.removeprefix("cramerl.") for name in names} & known


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_imports_go_one_way(path):
    name = module_name(path)
    for other in own_modules(imports(path)):
        same_room = place(other) == place(name) and name not in HOUSE
        assert place(other) < place(name) or same_room, f"{name} imports {other}, which stands below it"
        assert {name.partition(".")[0], other.partition(".")[0]} != {"linear", "deep"}


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_heavy_libraries_are_imported_where_they_are_used(path):
    if not module_name(path).startswith("deep."):
        assert not {name.partition(".")[0] for name in imports(path, top_level=True)} & HEAVY


def test_the_public_names_are_what_the_package_lists():
    assert sorted(cramerl.__all__) == cramerl.__all__
    for name in cramerl.__all__:
        assert getattr(cramerl, name).__doc__, f"{name} has no docstring"
    public = {n for n in vars(cramerl) if not n.startswith("_") and not isinstance(vars(cramerl)[n], type(ast))}
    assert public == set(cramerl.__all__)
