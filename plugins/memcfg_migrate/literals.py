"""Values that are written in Python source, without running it."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

DTYPES: Final = ("float32", "bfloat16", "float16", "float64", "uint8")
OPERATORS: Final[Mapping[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}  # fmt: skip
LONGEST: Final = 10_000
"""Characters of source that a value may take: a longer one is data, not an argument."""


class NotWritten(Exception):
    """The value is an expression that only running the program would tell."""


def value(node: ast.expr, names: Mapping[str, ast.expr], depth: int = 0) -> Any:
    """The value of an expression made of literals, of sums and products of numbers, of dtypes of torch, and of names that
    are bound to such once. Raises `NotWritten`."""
    if depth > 20:
        raise NotWritten
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name) and node.id in names:
        return value(names[node.id], names, depth + 1)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "torch":
        if node.attr in DTYPES:
            return node.attr
        raise NotWritten
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return [value(item, names, depth + 1) for item in node.elts]
    if isinstance(node, ast.Dict):
        return _mapping(node, names, depth)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_number(node.operand, names, depth)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        return _computed(node, names, depth)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict" and not node.args:
        return {word.arg: value(word.value, names, depth + 1) for word in node.keywords if word.arg is not None}
    raise NotWritten


def _mapping(node: ast.Dict, names: Mapping[str, ast.expr], depth: int) -> dict[Any, Any]:
    found = {}
    for key, item in zip(node.keys, node.values, strict=True):
        if key is None:
            raise NotWritten
        found[value(key, names, depth + 1)] = value(item, names, depth + 1)
    return found


def _number(node: ast.expr, names: Mapping[str, ast.expr], depth: int) -> Any:
    found = value(node, names, depth + 1)
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        raise NotWritten
    return found


def _computed(node: ast.BinOp, names: Mapping[str, ast.expr], depth: int) -> Any:
    left, right = _number(node.left, names, depth), _number(node.right, names, depth)
    try:
        return OPERATORS[type(node.op)](left, right)
    except ArithmeticError:
        raise NotWritten from None


def bindings(tree: ast.AST) -> dict[str, list[ast.expr | None]]:
    """What each name is bound to anywhere in the file; None where that is not written at that place."""
    found: dict[str, list[ast.expr | None]] = {}
    for node in ast.walk(tree):
        for name, bound in _bindings(node):
            found.setdefault(name, []).append(bound)
    return found


def once_bound(tree: ast.AST) -> dict[str, ast.expr]:
    """Names that are assigned exactly once in the whole file, to what they are assigned."""
    return {name: bound[0] for name, bound in bindings(tree).items() if len(bound) == 1 and bound[0] is not None}


def step_by_step(tree: ast.AST) -> dict[str, tuple[ast.expr, list[ast.expr]]]:
    """Names that are assigned once and then changed (`rows = rows.map(...)`): the first value and the changes."""
    found = {}
    for name, bound in bindings(tree).items():
        made = [node for node in bound if node is not None and not _mentions(node, name)]
        changes = [node for node in bound if node is not None and _mentions(node, name)]
        if len(made) == 1 and changes and None not in bound:
            found[name] = (made[0], changes)
    return found


def _mentions(node: ast.expr, name: str) -> bool:
    return any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(node))


def _bindings(node: ast.AST) -> list[tuple[str, ast.expr | None]]:
    """Names that a statement binds; None where what they are bound to is not written there."""
    if isinstance(node, ast.Assign):
        return [pair for target in node.targets for pair in _targets(target, node.value)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [(node.target.id, node.value)]
    if isinstance(node, ast.NamedExpr):
        return [(node.target.id, node.value)]
    if isinstance(node, (ast.AugAssign, ast.For, ast.AsyncFor)):
        return list(_targets(node.target, None))
    if isinstance(node, ast.arg):
        return [(node.arg, None)]
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [(node.name, None)]
    if isinstance(node, ast.withitem) and node.optional_vars is not None:
        return list(_targets(node.optional_vars, None))
    return []


def _targets(target: ast.expr, bound: ast.expr | None) -> list[tuple[str, ast.expr | None]]:
    if isinstance(target, ast.Name):
        return [(target.id, bound)]
    if isinstance(target, (ast.Tuple, ast.List)):
        return [pair for item in target.elts for pair in _targets(item, None)]
    return []


def source(node: ast.expr) -> str:
    """The expression, short enough to be told."""
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
