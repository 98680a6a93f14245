"""Prompt and completion pairs from the standard library, read as text: nothing is imported or run.

Four kinds of pairs: a Python topic and its explanation; a module, class or function and its documentation; a function's
head with its docstring and the rest of its source. The order is that of a hash, so any first N rows are a fair sample.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
import sysconfig
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

VERSION = 1
"""Part of the cache's name: raise it whenever the pairs change."""

SKIPPED = frozenset({
    "__pycache__", "dist-packages", "ensurepip", "idle_test", "idlelib", "lib2to3", "site-packages", "test", "tests",
    "turtledemo",
})  # fmt: skip
SHORTEST = 12
"""Completions of fewer characters say nothing."""
DOCUMENTED = 40
"""A docstring of more characters says enough to write the function from it."""


@dataclass(frozen=True)
class Pair:
    """`name` is what the pair is about; pairs about one thing stay on one side of the evaluation split."""

    name: str
    prompt: str
    completion: str


def root() -> Path:
    """Where this Python keeps its library."""
    return Path(sysconfig.get_paths()["stdlib"])


def files(folder: Path) -> list[Path]:
    """The library's source files in a fixed order."""
    found: list[Path] = []
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(f for f in folders if f not in SKIPPED and not f.startswith("config-"))
        found += [Path(place, name) for name in sorted(names) if name.endswith(".py")]
    return found


def pairs(file: Path, folder: Path) -> Iterator[Pair]:
    """The pairs of one file; none of a file that this Python cannot parse."""
    try:
        source = file.read_text(encoding="utf-8")
        tree = ast.parse(source)
    except (OSError, SyntaxError, ValueError):
        return
    module = ".".join(file.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
    if module == "pydoc_data.topics":
        yield from _topics(tree)
        return
    text = ast.get_docstring(tree)
    if text:
        yield Pair(module, f"What is the Python module {module}?\n\n", text)
    yield from _members(tree, module, source.split("\n"))


def ordered(found: Iterator[Pair]) -> list[Pair]:
    """Without short and repeated completions, in the order of a hash of their text."""
    kept: dict[bytes, Pair] = {}
    for pair in found:
        if len(pair.completion.strip()) >= SHORTEST:
            kept.setdefault(_hash(pair.completion), pair)
    return sorted(kept.values(), key=lambda pair: _hash(pair.prompt + pair.completion))


def _hash(text: str) -> bytes:
    # Source may hold lone surrogates only as escapes, but `surrogatepass` costs nothing and cannot fail.
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _topics(tree: ast.Module) -> Iterator[Pair]:
    """`pydoc`'s topics are one dictionary of string constants."""
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Dict):
            for name, text in ast.literal_eval(statement.value).items():
                yield Pair(f"topic {name}", f"Explain the Python topic {name}.\n\n", text.strip() + "\n")


def _members(node: ast.AST, prefix: str, lines: list[str]) -> Iterator[Pair]:
    """The documented classes and functions below a node, each under its dotted name."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            name = f"{prefix}.{child.name}"
            text = ast.get_docstring(child)
            if text and isinstance(child, ast.ClassDef):
                yield Pair(name, f"Document the class {name}.\n\n", text)
            elif text and not isinstance(child, ast.ClassDef):
                yield Pair(name, f"Document the function {name}({ast.unparse(child.args)}).\n\n", text)
                yield from _code(child, name, text, lines)
            yield from _members(child, name, lines)
        elif isinstance(child, (ast.If, ast.Try, ast.ExceptHandler, ast.With)):
            yield from _members(child, prefix, lines)


def _code(node: ast.FunctionDef | ast.AsyncFunctionDef, name: str, text: str, lines: list[str]) -> Iterator[Pair]:
    """The head and docstring of a function as the prompt, the rest of its source as the completion."""
    docstring, rest = node.body[0], node.body[1:]
    one_liner = docstring.lineno == node.lineno or (rest and rest[0].lineno == docstring.end_lineno)
    if len(text) <= DOCUMENTED or not rest or one_liner:
        return
    head = lines[node.lineno - 1 : docstring.end_lineno]
    body = lines[docstring.end_lineno : node.end_lineno]
    whole = textwrap.dedent("\n".join(head + body)).split("\n")
    prompt = "\n".join(whole[: len(head)])
    completion = "\n".join(whole[len(head) :])
    module_name = re.sub(r"\.[^.]+$", "", name)
    yield Pair(name, f"Complete this function of {module_name}.\n\n{prompt}\n", completion + "\n")
