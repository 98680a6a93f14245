"""What is taken for granted of vLLM, looked up in its source: of the one that is installed, or of one that was unpacked into
the folder that `MEMCFG_VLLM_SOURCE` names (`pip download --no-deps vllm==0.31.0`, then `unzip`). Nothing of it is imported."""

from __future__ import annotations

import ast
import os
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import memcfg_vllm
import pytest
from memcfg_vllm.contract import CALLS, ROUTES, Call


def source() -> Path | None:
    """The folder that holds the package `vllm`."""
    given = os.environ.get("MEMCFG_VLLM_SOURCE")
    if given:
        return Path(given)
    found = find_spec("vllm")
    return Path(found.submodule_search_locations[0]).parent if found and found.submodule_search_locations else None


@cache
def tree(root: Path, module: str) -> ast.Module:
    path = root / Path(*module.split("."))
    file = path.with_suffix(".py")
    return ast.parse((file if file.is_file() else path / "__init__.py").read_text())


def fault(root: Path, call: Call) -> str | None:
    """What a vLLM lacks of what is called."""
    owner, _, method = call.name.partition(".")
    try:
        classes = {node.name: node for node in ast.walk(tree(root, call.module)) if isinstance(node, ast.ClassDef)}
    except FileNotFoundError:
        return f"there is no module `{call.module}`"
    if owner not in classes:
        return f"`{call.module}` has no class `{owner}`"
    if not method:
        fields = {
            n.target.id for n in classes[owner].body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)
        }
        return lacking(call, fields)
    functions = {n.name: n for n in classes[owner].body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}
    if method not in functions:
        return f"`{owner}` has no `{method}`"
    given = functions[method].args
    names = {a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)}
    return lacking(call, names | {a.arg for a in (given.vararg, given.kwarg) if a is not None})


def answers(root: Path, module: str, route: str) -> bool:
    """Whether a module of a vLLM names an address."""
    try:
        return any(isinstance(n, ast.Constant) and n.value == route for n in ast.walk(tree(root, module)))
    except FileNotFoundError:
        return False


def lacking(call: Call, names: set[str]) -> str | None:
    missing = [name for name in call.arguments if name not in names]
    return f"`{call.name}` has no {', '.join(f'`{name}`' for name in missing)}" if missing else None


@pytest.mark.skipif(source() is None, reason="no vllm is installed, and MEMCFG_VLLM_SOURCE names none")
def test_vllm_has_what_is_called() -> None:
    root = source()
    assert root is not None
    assert [found for call in CALLS if (found := fault(root, call)) is not None] == []
    assert [
        route for route, modules in ROUTES.items() if not any(answers(root, module, route) for module in modules)
    ] == []


def test_nothing_is_called_that_the_contract_leaves_out() -> None:
    """Of the adapter: every method of the engine, every name imported from vllm, every argument given to them."""
    adapter = ast.parse((Path(memcfg_vllm.__file__).parent / "engine.py").read_text())
    imported = {
        (node.module, alias.name)
        for node in ast.walk(adapter)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("vllm")
        for alias in node.names
    }
    owners = {call.name.partition(".")[0] for call in CALLS}
    assert {name for _, name in imported} <= owners
    calls = [node for node in ast.walk(adapter) if isinstance(node, ast.Call)]
    asked = {
        node.func.attr: node
        for node in calls
        if isinstance(node.func, ast.Attribute) and text(node.func.value) == "self._llm"
    }
    known = {call.name.partition(".")[2]: call.arguments for call in CALLS if call.name.startswith("LLM.")}
    assert set(asked) == set(known) - {"__init__"}
    for name, node in asked.items():
        assert {k.arg for k in node.keywords} <= set(known[name]), name
    (made,) = [node for node in calls if text(node.func) == "LLM"]
    settings = {*known["__init__"], *next(call.arguments for call in CALLS if call.name == "EngineArgs")}
    assert {k.arg for k in made.keywords if k.arg} <= settings


def test_every_setting_is_one_that_vllm_knows() -> None:
    folder = Path(memcfg_vllm.__file__).parent
    (made,) = [
        node
        for node in ast.walk(ast.parse((folder / "colocated.py").read_text()))
        if isinstance(node, ast.Call) and text(node.func) == "Engine"
    ]
    arguments = {call.name: call.arguments for call in CALLS}
    settings = {*arguments["LLM.__init__"], *arguments["EngineArgs"]} - {"kwargs", "model"}
    assert {k.arg for k in made.keywords} - {"alone"} <= settings


def text(node: ast.AST) -> str:
    return ast.unparse(node)


def test_a_lacking_argument_is_told(tmp_path: Path) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "a.py").write_text("class A:\n    x: int\n    def go(self, y, *, z=1): ...\n")
    found = [
        fault(tmp_path, Call("vllm.a", name, arguments))
        for name, arguments in (
            ("A", ("x",)),
            ("A.go", ("y", "z")),
            ("A", ("w",)),
            ("A.go", ("q",)),
            ("A.stop", ()),
            ("B", ()),
        )
    ]
    assert found == [
        None,
        None,
        "`A` has no `w`",
        "`A.go` has no `q`",
        "`A` has no `stop`",
        "`vllm.a` has no class `B`",
    ]
    assert fault(tmp_path, Call("vllm.b", "A")) == "there is no module `vllm.b`"
