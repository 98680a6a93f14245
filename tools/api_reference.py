"""What plugins are written against, read from the code: the pages docs/hooks.md and docs/rules.md, and the plain list of names
and signatures that tests hold the code to, tests/registry/api_reference.txt.

`tools/generate_docs.py` writes them with the other pages. A change in the list is a change of the interface: see
docs/api-stability.md."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import memcfg
import memcfg.batch
import memcfg.engine.evidence
import memcfg.engine.ledger
import memcfg.rows
import memcfg.testing
from memcfg.registry import hookspecs, load
from memcfg.registry._markers import Slot
from memcfg.registry.hooks import SPECS
from memcfg.registry.implements import hooks_in
from memcfg.registry.plugin import API, OLDEST_API
from memcfg.solver.rules import Rule

RULES = (
    "Default", "Force", "Require", "Forbid", "Fallback", "Ignored", "only_when", "RenameKey", "RenameValue", "RemovedKey",
    "Check", "Advise",
)  # fmt: skip
OPTIONS = ("Bool", "Enum", "Int", "Setting", "Fact", "key")
LATE = ("compose", "resolve")
"""Names of `memcfg` that are imported on first use."""
LISTED = 88
"""Longest line of a signature; a longer one takes a line for each parameter."""
NOTICE = "<!-- Written by tools/generate_docs.py from the code. Change that, not this page. -->"


# ------------------------------------------------------------------------------------------------------------ signatures


def signature(function: Any, name: str) -> str:
    """As one would write it, annotations as they stand in the source."""
    found = inspect.signature(function)
    parts, keywords = [], False
    for parameter in found.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not keywords:
            parts.append("*")
        keywords = keywords or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        parts.append(_parameter(parameter))
    result = (
        "" if found.return_annotation in (inspect.Signature.empty, "None", None) else _type(found.return_annotation)
    )
    return f"{name}({', '.join(part for part in parts if part)}){f' -> {result}' if result else ''}"


def _parameter(parameter: inspect.Parameter) -> str:
    if parameter.name == "self":
        return ""
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    typed = "" if parameter.annotation is parameter.empty else f": {_type(parameter.annotation)}"
    given = "" if parameter.default is parameter.empty else f" = {_default(parameter.default)}"
    return f"{stars}{parameter.name}{typed}{given}"


def _type(annotation: Any) -> str:
    return (
        annotation.replace('"', "") if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    )


def _default(value: Any) -> str:
    shown = {id(memcfg.ALWAYS): "ALWAYS", id(memcfg.UNSET): "UNSET"}.get(id(value), repr(value))
    return shown if len(shown) <= LISTED // 2 else "..."


def folded(text: str) -> str:
    """A long signature with a line for each parameter."""
    if len(text) <= LISTED:
        return text
    head, _, rest = text.partition("(")
    inside, _, tail = rest.rpartition(")")
    parts = re.split(r", (?![^\[\(]*[\]\)])", inside)
    return "\n".join([f"{head}(", *(f"    {part}," for part in parts), f"){tail}"])


# ------------------------------------------------------------------------------------------------------- the plain list


def listing() -> str:
    """Every public name that a plugin may use, with its signature, a line each."""
    sections = {
        "memcfg": list(_members(memcfg, [*memcfg.__all__, *LATE])),
        "hooks": [f"{signature(spec, name)}  [{slot(spec)}]" for name, spec in SPECS.items()],
        "memcfg.batch": list(_members(memcfg.batch)),
        "memcfg.rows": list(_members(memcfg.rows)),
        "memcfg.engine.evidence": list(_class(memcfg.engine.evidence.Effective)),
        "memcfg.engine.ledger": list(_class(memcfg.engine.ledger.Ledger)),
        "memcfg.testing": list(_members(memcfg.testing, memcfg.testing.__all__)),
    }
    parts = [f"plugin interface {API}, and back to {OLDEST_API}"]
    for title, lines in sections.items():
        parts.append("\n".join([f"{title}:", *(f"  {line}" for line in lines)]))
    return "\n\n".join(parts) + "\n"


def _members(module: ModuleType, names: list[str] | None = None) -> Iterator[str]:
    if names is None:
        own = (name for name, thing in vars(module).items() if getattr(thing, "__module__", "") == module.__name__)
        names = [name for name in own if not name.startswith("_")]
    for name in sorted(names):
        thing = getattr(module, name)
        if inspect.isclass(thing):
            yield from _class(thing)
        elif callable(thing):
            yield signature(thing.__call__ if isinstance(thing, ModuleType) else thing, name)
        else:
            yield f"{name}: {type(thing).__name__}"


def _class(kind: type) -> Iterator[str]:
    """The class with its constructor, then its public members."""
    protocol = getattr(kind, "_is_protocol", False)
    yield f"protocol {kind.__name__}" if protocol else signature(kind, f"class {kind.__name__}")
    for name, member in vars(kind).items():
        if name == "__call__" or not name.startswith("_"):
            yield from _member(name, member)


def _member(name: str, member: Any) -> Iterator[str]:
    if isinstance(member, property):
        yield f"  .{name}: {_type(inspect.signature(member.fget).return_annotation)}"  # type: ignore[arg-type]
    elif isinstance(member, (classmethod, staticmethod)):
        yield f"  .{signature(member.__func__, name)}"
    elif isinstance(member, FunctionType):
        yield f"  .{signature(member, name)}"


# --------------------------------------------------------------------------------------------------------------- pages


def slot(spec: Any) -> str:
    found: Slot = spec.memcfg_slot
    return f"exclusive: `{found.selector}`" if found.selector else f"chain: `{found.feeds}`"


def hooks_page() -> str:
    """docs/hooks.md: every hook with its signature, its slot and who implements it."""
    parts = [NOTICE, "# Hooks", _hooks_head()]
    implementers = _implementers()
    for title, names in _sections():
        parts.append(f"## {title[:1].upper()}{title[1:]}")
        for name in names:
            spec = SPECS[name]
            who = ", ".join(f"`{plugin}`" for plugin in implementers.get(name, ())) or "no plugin of memcfg's own"
            code = f"```python\n{folded(signature(spec, name))}\n```"
            parts += [f"### `{name}`", code, _prose(spec.__doc__), f"*{_kind(spec)}* Implemented by {who}."]
    return "\n\n".join(parts) + "\n"


def _hooks_head() -> str:
    text = _prose((hookspecs.__doc__ or "").partition("\n\n")[2])
    return (
        f"{text}\n\nHow to write one: [plugins.md](plugins.md). What may change: [api-stability.md](api-stability.md)."
    )


def _kind(spec: Any) -> str:
    found: Slot = spec.memcfg_slot
    if found.selector:
        return f"Exclusive: called on the plugin that implements the value of `{found.selector}`."
    return f"Chain: every active implementer is called, its result the next one's `{found.feeds}`."


def _sections() -> list[tuple[str, list[str]]]:
    """The parts of the specifications, by the ruled lines between them."""
    text = Path(inspect.getfile(hookspecs)).read_text(encoding="utf-8")
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if ruled := re.fullmatch(r"# -{10,} (.+)", line):
            found.append((ruled[1], []))
        elif (begun := re.match(r"def (\w+)\(", line)) and begun[1] in SPECS:
            found[-1][1].append(begun[1])
    return found


def _implementers() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for plugin in load(discover=("memcfg",)).plugins:
        if plugin.plugin is not None and plugin.plugin.hooks is not None:
            for hook in hooks_in(plugin.plugin.hooks):
                found.setdefault(hook, []).append(plugin.name)
    return {hook: sorted(names) for hook, names in found.items()}


def rules_page() -> str:
    """docs/rules.md: the kinds of option and of rule, and what a plugin's declaration holds."""
    return "\n\n".join([
        NOTICE, "# Options and rules",
        "What a plugin's declaration is made of. How the values of a plan follow from it, with examples: "
        "[plugins.md](plugins.md).",
        "## Options", *(part for name in OPTIONS for part in _entry(name)),
        "## Rules", _prose(Rule.__doc__), *(part for name in RULES for part in _entry(name)),
        "## The declaration", *(part for name in ("Plugin", "NotYet", "Axis", "hookimpl") for part in _entry(name)),
    ]) + "\n"  # fmt: skip


def _entry(name: str) -> Iterator[str]:
    thing = getattr(memcfg, name)
    yield f"### `{name}`"
    yield f"```python\n{folded(signature(thing, name))}\n```"
    yield _prose(thing.__doc__)


def _prose(doc: str | None) -> str:
    return inspect.cleandoc(doc or "")


def pages(root: Path) -> dict[Path, str]:
    """What is written where."""
    return {
        root / "docs/hooks.md": hooks_page(),
        root / "docs/rules.md": rules_page(),
        root / "tests/registry/api_reference.txt": listing(),
    }
