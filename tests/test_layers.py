"""Layers are one-way: what a package may import is written here, and the source is held to it."""

import ast
import functools
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PACKAGE = ROOT / "memcfg"

HEAVY = {"torch", "transformers", "datasets", "accelerate", "peft", "tokenizers", "safetensors", "liger_kernel"}

FORBIDDEN = {
    "solver": {"memcfg.registry", "memcfg.compose", "memcfg.engine", "memcfg.report", "hydra", "omegaconf", "pluggy"}
    | HEAVY,
    "registry": {"memcfg.compose", "memcfg.engine", "memcfg.report", "memcfg.commands", "hydra", "omegaconf"} | HEAVY,
    "core": {"memcfg.compose", "memcfg.engine", "memcfg.report", "hydra", "omegaconf"} | HEAVY,
    "compose": {"memcfg.engine", "memcfg.report"} | HEAVY,
    "testing": {"hydra", "omegaconf", "pytest"},
    "report": {"memcfg.compose", "memcfg.engine", "hydra", "omegaconf"} | HEAVY,
    "engine": {
        "memcfg.compose",
        "memcfg.registry.loader",
        "memcfg.solver.resolve",
        "memcfg.report",
        "hydra",
        "omegaconf",
    },
}


@functools.cache
def parsed(path: pathlib.Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def imports(path: pathlib.Path, *, top_level: bool) -> set[str]:
    """Modules that a file imports: at its top level (what its import costs), or anywhere in it."""
    tree = parsed(path)
    nodes = statements(tree, at_import=top_level)
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def statements(node: ast.AST, *, at_import: bool):
    """All statements; with `at_import` those that run at import: not in functions, nor under `if TYPE_CHECKING`."""
    for part in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, part, ()):
            if at_import and isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            if at_import and isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            yield child
            yield from statements(child, at_import=at_import)


@pytest.mark.parametrize("layer", sorted(FORBIDDEN))
def test_a_layer_imports_only_what_lies_below_it(layer):
    for path in sorted((PACKAGE / layer).rglob("*.py")):
        for name in imports(path, top_level=True):
            crossed = [f for f in FORBIDDEN[layer] if name == f or name.startswith(f + ".")]
            assert not crossed, f"{path.relative_to(ROOT)} imports {name}"


def test_the_solver_knows_only_the_standard_library_and_itself():
    import sys

    for path in sorted((PACKAGE / "solver").rglob("*.py")):
        for name in imports(path, top_level=False):
            ours = name.startswith(("memcfg.solver", "memcfg.errors"))
            assert ours or name.split(".")[0] in sys.stdlib_module_names, f"{path.name} imports {name}"


def plugin_folders() -> list[pathlib.Path]:
    return sorted(p for p in (ROOT / "plugins").glob("memcfg_*") if p.is_dir())


def naming_others(folder: pathlib.Path) -> list[pathlib.Path]:
    """The files in whose text the name of another plugin's package may stand: no other file can import one."""
    named = ((path, re.findall(r"\bmemcfg_\w+", path.read_text(encoding="utf-8"))) for path in folder.rglob("*.py"))
    return sorted(path for path, names in named if set(names) - {folder.name})


@pytest.mark.parametrize("folder", plugin_folders(), ids=lambda p: p.name)
def test_a_first_party_plugin_imports_no_other_plugin(folder):
    for path in naming_others(folder):
        for name in imports(path, top_level=False):
            other = name.split(".")[0]
            assert not (other.startswith("memcfg_") and other != folder.name), (
                f"{path.relative_to(ROOT)} imports {name}"
            )


def test_memcfg_itself_names_no_plugin_package():
    names = {p.name for p in plugin_folders()}
    for path in naming_others(PACKAGE):
        for name in imports(path, top_level=False):
            assert name.split(".")[0] not in names, f"{path.relative_to(ROOT)} imports {name}"


def test_modules_stay_small():
    """No module over 500 lines, 150 at the median: a longer one holds two things that want two rooms."""
    import statistics

    lengths = {
        p: len(p.read_text(encoding="utf-8").splitlines())
        for d in ("memcfg", "plugins")
        for p in (ROOT / d).rglob("*.py")
    }
    assert not {str(p): n for p, n in lengths.items() if n > 500}
    assert statistics.median(lengths.values()) <= 150
