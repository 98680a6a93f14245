"""Overrides as users write them, made into what Hydra composes.

Hydra insists on `+packing=bfd` or on `packing=bfd` depending on a defaults list that users never see, has no word for
switching a group off, lets a group choice lose against an older key, and adds any misspelt key that has a `+` before it.
Here every spelling is accepted that has one meaning, in the order in which it was typed, and the rest is refused with
all its faults at once. Overrides are read with Hydra's own parser, so quoting, lists and sweeps are Hydra's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Override
from hydra.errors import HydraException

from memcfg.compose.cards import card_facts
from memcfg.compose.layers import COMMAND_LINE
from memcfg.compose.spelling import nearest
from memcfg.compose.values import MISSING, calls_code, emptied, meaning
from memcfg.compose.vocabulary import ASSUME, CARD, PRESETS, SHORT
from memcfg.errors import Note, Problem, RequestError

if TYPE_CHECKING:
    from memcfg.compose.tree import Tree

OFF: Final = ("none", "off")
"""Names that switch a group off, in order of preference."""


@dataclass(frozen=True)
class Line:
    """One override as Hydra is given it. `values` are what it assigns: several for a sweep, none for an open one
    (`range`, `glob`). `said` is what the user typed."""

    kind: Literal["group", "key", "hydra"]
    name: str
    text: str
    said: str
    values: tuple[Any, ...] = ()
    sweep: bool = False


@dataclass
class Normalised:
    lines: list[Line] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    @property
    def texts(self) -> list[str]:
        return [line.text for line in self.lines]

    def typed(self) -> dict[str, Any]:
        """What the command line sets by key, group choices left out."""
        return {line.name: line.values[0] for line in self.lines if line.kind == "key" and len(line.values) == 1}


def normalise(overrides: Sequence[str], tree: Tree, sweeps: bool = False) -> Normalised:
    """Hydra's overrides for what was typed. `sweeps` allows several values for one name."""
    result = Normalised()
    for said in overrides:
        try:
            for line in _lines(said, tree):
                _check_sweep(line, sweeps)
                append(line, result, tree)
        except RequestError as error:
            result.problems.extend(error.problems)
    result.notes.extend(_emptied(result.lines, tree))
    return result


def _emptied(lines: Sequence[Line], tree: Tree) -> Iterator[Note]:
    """What was typed without a value, and what it is read as."""
    for line in (line for line in lines if line.kind == "key" and len(line.values) == 1):
        if (meant := emptied(tree.vocabulary.option(line.name), line.values[0])) is not None:
            yield Note("note", "compose.empty", f"`{line.said}` is read as `{line.name}={meant}`")


def parse(said: str) -> Override:
    """Hydra's reading of one override. Raises `RequestError` where it has none."""
    text = f"{said[:-1]}null" if said.endswith("=~") else said  # YAML's other word for null, which Hydra does not know
    if not said.lstrip("+~").partition("=")[0].strip() or (not said.startswith("~") and "=" not in said):
        raise RequestError(Problem("no override; write `key=value`", key=said))
    try:
        return OverridesParser.create().parse_override(text)
    except HydraException as error:
        first = str(error).splitlines()[0] if str(error) else "not understood"
        fix = "quote text that holds spaces, commas, brackets, quotes or letters beyond ASCII: `'key=\"a, b\"'`"
        raise RequestError(Problem(f"cannot be read: {first[:1].lower()}{first[1:]}", key=said, fix=fix)) from error


def hydra_searchpath(overrides: Sequence[str]) -> tuple[list[str], list[str]]:
    """The folders that `hydra.searchpath=[...]` names, and the other overrides."""
    folders: list[str] = []
    rest: list[str] = []
    for said in overrides:
        if said.lstrip("+").startswith("hydra.searchpath="):
            value = parse(said).value()
            folders.extend(str(v) for v in value) if isinstance(value, list) else folders.append(str(value))
        else:
            rest.append(said)
    return folders, rest


# -------------------------------------------------------------------------------------------------------- one override


def _lines(said: str, tree: Tree) -> Iterator[Line]:
    override = parse(said)
    name, values = override.key_or_group, _values(override)
    if name == "hydra" or override.is_hydra_override():
        yield _hydra_line(said, override, values)
    elif override.package is not None:
        raise RequestError(Problem("a group has its place already; leave `@` and what follows out", key=said))
    elif name in tree.groups and not _is_short(name, values, tree) and not isinstance(override.value(), dict):
        yield _group_line(name, said, override, values, tree)
    else:
        yield from _key_lines(name, said, override, values, tree)


def _values(override: Override) -> tuple[Any, ...]:
    """The plain values of an override: one, or those of a sweep that lists them."""
    if override.is_delete():
        return ()
    raw = override._value
    if isinstance(raw, ChoiceSweep):
        return tuple(Override._convert_value(item) for item in raw.list)
    return () if override.is_sweep_override() else (override.value(),)


def _hydra_line(said: str, override: Override, values: tuple[Any, ...]) -> Line:
    name = override.key_or_group
    if "_target_" in name.replace("/", ".").split(".") or any(calls_code(value) for value in values):
        raise RequestError(Problem("`_target_` is refused: a config names options, it does not call code", key=said))
    return Line("hydra", name, said, said, values, override.is_sweep_override())


def _is_short(name: str, values: tuple[Any, ...], tree: Tree) -> bool:
    return name in SHORT and not any(value in tree.groups[name] for value in values)


def _group_line(group: str, said: str, override: Override, values: tuple[Any, ...], tree: Tree) -> Line:
    sweep = override.is_sweep_override()
    if override.is_delete() or values == (None,):
        off = _off(group, tree)
        text = f"~{group}" if off is None else f"{group}={off}"
        return Line("group", group, text, said, () if off is None else (off,))
    if sweep and not values:
        return Line("group", group, f"{group}={override.get_value_string()}", said, (), sweep)
    names = tuple(_name(group, value, said, tree) for value in values)
    return Line("group", group, f"{group}={_listed(override._value, names)}", said, names, sweep)


def _listed(raw: Any, names: tuple[str, ...]) -> str:
    """The names in the form of sweep that the user wrote."""
    listed = ",".join(names)
    if not isinstance(raw, ChoiceSweep) or (raw.simple_form and not raw.shuffle):
        return listed
    return f"shuffle({listed})" if raw.shuffle else f"choice({listed})"


def _off(group: str, tree: Tree) -> str | None:
    return next((name for name in OFF if name in tree.groups[group]), None)


def _name(group: str, value: Any, said: str, tree: Tree) -> str:
    """The file of a group that a value means. Raises `RequestError` with the nearest names."""
    names = tree.groups[group]
    if value is None or value == "none":
        off = _off(group, tree)
        if off is not None:
            return off
        raise RequestError(Problem(f"`{group}` has no file that switches it off", key=said, fix=f"leave `{group}` out"))
    if value == "":
        raise RequestError(Problem(f"no name is given; `{group}` has {_enumerated(names)}", key=said))
    if isinstance(value, bool):
        value = "on" if value else "off"
    if isinstance(value, str) and value in names:
        return value
    raise RequestError(_no_such_name(group, value, said, tree))


def _no_such_name(group: str, value: Any, said: str, tree: Tree) -> Problem:
    names = tree.groups[group]
    close = nearest(str(value), names) if isinstance(value, str) else ()
    close = close or tuple(name for name in names if isinstance(value, str) and value in name)
    if close:
        return Problem(f"`{group}` has no `{value}`", key=said, nearest=tuple(f"{group}={name}" for name in close))
    inside = [key for key in tree.vocabulary.settable if key.startswith(f"{group}.")]
    fix = f"for one value, name its option: {_enumerated(inside)}" if not isinstance(value, str) and inside else None
    return Problem(f"`{group}` has no `{value}`; it has {_enumerated(names)}", key=said, fix=fix)


def _enumerated(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _key_lines(key: str, said: str, override: Override, values: tuple[Any, ...], tree: Tree) -> Iterator[Line]:
    words = tree.vocabulary
    if override.is_delete():
        values = (None,) if key in SHORT else (MISSING,)
    if len(values) == 1 and isinstance(values[0], dict) and words.holder(key) is None:
        for path, value in words.leaves({key: values[0]} if "." not in key else _deep(key, values[0])):
            yield _key_line(path, said, Override._get_value_element_as_str(value), (value,), False, tree)
        return
    if key == CARD and len(values) == 1 and not override.is_sweep_override():
        for path, value in card_facts(values[0], said).items():
            yield Line("key", path, f"{path}={value}", said, (value,))
        return
    text = "null" if values == (None,) else MISSING if values == (MISSING,) else override.get_value_string()
    yield _key_line(SHORT.get(key, key), said, text, values, override.is_sweep_override(), tree)


def _deep(key: str, value: Any) -> dict[str, Any]:
    for part in reversed(key.split(".")):
        value = {part: value}
    return dict(value)


def _key_line(key: str, said: str, text: str, values: tuple[Any, ...], sweep: bool, tree: Tree) -> Line:
    words = tree.vocabulary
    fault = words.fault(key, values[0] if values else "", COMMAND_LINE, tree.groups)
    if fault is None and any(calls_code(value) for value in values):
        fault = Problem("`_target_` is refused: a config names options, it does not call code", key=said)
    if fault is not None:
        raise RequestError(fault)
    if not key.startswith(ASSUME):
        for value in values:
            meaning(key, words.option(key), value, COMMAND_LINE)
    force = "++" if words.is_mapping(words.holder(key) or key) else ""  # Hydra closes mappings: what is inside is added
    return Line("key", key, f"{force}{key}={text}", said, values, sweep)


# ------------------------------------------------------------------------------------------------------- all together


def _check_sweep(line: Line, allowed: bool) -> None:
    if line.sweep and not allowed and line.kind != "hydra":
        fix = "add `-m` to run one job for each"
        if line.kind == "key":
            fix += f"; for a list write `{line.name}=[a,b]`, for text `{line.name}='a,b'`"
        raise RequestError(Problem("several values, and this is one run", key=line.said, fix=fix))


def append(line: Line, result: Normalised, tree: Tree) -> None:
    """Add a line; it replaces earlier ones that say something else about the same thing."""
    replaced = [earlier for earlier in result.lines if _replaces(line, earlier, tree)]
    result.lines = [earlier for earlier in result.lines if earlier not in replaced]
    result.lines.append(line)
    for earlier in replaced:
        if earlier.text != line.text:
            text = f"`{line.said}` replaces `{earlier.said}`, which came before it"
            result.notes.append(Note("note", "compose.order", text))


def _replaces(line: Line, earlier: Line, tree: Tree) -> bool:
    if line.kind != "group" or earlier.kind != "key":
        return (line.kind, line.name) == (earlier.kind, earlier.name)
    if line.name in PRESETS or line.sweep:  # a preset is a lower layer; of a sweep, each job decides for itself
        return False
    if not line.values:
        return earlier.name.startswith(f"{line.name.replace('/', '.')}.")
    return earlier.name in tree.values(line.name, line.values[0])
