"""`memcfg COMMAND --help`: what one command is for, from the documentation in its code, which is read and not imported."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from memcfg.commands import COMMANDS
from memcfg.report.words import wrapped

MORE: Final = "`memcfg --help` lists overrides, groups, and the flags of every command"


def page(name: str, targets: Mapping[str, str], flags: Mapping[str, str]) -> str:
    """The help page of a command of memcfg's or of a plugin's (`targets`: `module:function` of those)."""
    doc = module_doc(name) if name in COMMANDS else _of_plugin(name, targets[name])
    readers = {flag: text.partition(": ")[0].split(", ") for flag, text in flags.items()}
    own = {flag: text for flag, text in flags.items() if any(name == reader.split()[0] for reader in readers[flag])}
    parts = ["\n".join(_lines(paragraph)) for paragraph in doc.split("\n\n")]
    if own:
        room = max(map(len, own)) + 2
        rows = [
            line
            for flag, text in own.items()
            for line in wrapped(text.partition(": ")[2], " " * (room + 2), first=f"  {flag:<{room}}")
        ]
        parts.append("\n".join(["flags", *rows]))
    return "\n\n".join([*parts, "\n".join(wrapped(MORE, "", first=""))])


def _of_plugin(name: str, target: str) -> str:
    doc = function_doc(target) or f"from a plugin ({target})"
    return f"`memcfg {name}`: {doc[:1].lower()}{doc[1:]}"


def module_doc(name: str) -> str:
    """The documentation of the module of one of memcfg's own commands."""
    return _doc(f"memcfg.commands.{name.replace('-', '_')}", None) or COMMANDS[name]


def function_doc(target: str) -> str:
    """What a plugin says of its command `module:function`; empty where it says nothing."""
    module, _, function = target.partition(":")
    return _doc(module, function)


def _doc(module: str, function: str | None) -> str:
    try:
        found = importlib.util.find_spec(module)
        text = Path(found.origin).read_text(encoding="utf-8") if found and found.origin else ""
        tree = ast.parse(text)
        if function is None:
            return ast.get_docstring(tree) or ""
        functions = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function)
        return next((ast.get_docstring(node) or "" for node in functions), "")
    except (ImportError, OSError, ValueError, SyntaxError):
        return ""


def _lines(paragraph: str) -> Iterator[str]:
    """A paragraph in the width of the terminal; examples, one a line, as they are."""
    lines = paragraph.splitlines()
    if all(line.startswith("memcfg ") for line in lines):
        parts = [re.split(r"\s{2,}", line, maxsplit=1) for line in lines]
        room = max(len(part[0]) for part in parts) + 2
        for example, *text in parts:
            yield from wrapped(" ".join(text), " " * (room + 2), first=f"  {example:<{room}}")
    else:
        yield from wrapped(" ".join(paragraph.split()), "", first="")
