"""Which hooks a module implements, read from its text: importing it would bring torch."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path

from memcfg.registry.hooks import SPECS


def hooks_in(module: str) -> tuple[str, ...]:
    """The hooks that a module defines or takes from another, in the order of the specifications; none where it cannot be
    found. Packages above the module are imported."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return ()
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return ()
    named = set(_names(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))))
    return tuple(hook for hook in SPECS if hook in named)


def _names(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)
