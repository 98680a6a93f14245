"""Errors as text: what is wrong, one cause a line, then what to write instead."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence

from memcfg.errors import Conflict, ConflictError, MemcfgError, Note, PluginError, Price, Problem
from memcfg.report.words import gib, listed, width, wrapped


def error_text(error: MemcfgError) -> str:
    """The whole message, without a final line end."""
    lines = list(_conflicts(error) if isinstance(error, ConflictError) else _problems(error))
    if isinstance(error, PluginError) and error.trace:
        lines += ["", *(f"  {line}" for line in error.trace.rstrip().splitlines())]
    return "\n".join(lines)


def unexpected_text(error: Exception) -> str:
    """A fault of memcfg or of a plugin: where it happened, and how to see all of it."""
    frames = traceback.extract_tb(error.__traceback__)
    where = [f"  at {frames[-1].filename}:{frames[-1].lineno}"] if frames else []
    hint = "  this is a fault of memcfg or of a plugin; `MEMCFG_DEBUG=1` shows the traceback"
    return "\n".join([f"error: unexpected {type(error).__name__}: {error}", *where, hint])


def note_lines(notes: Sequence[Note]) -> list[str]:
    """Notes, each under its level."""
    return [line for note in notes for line in wrapped(f"{note.level}: {note.text}", indent="  ", first="")]


def _problems(error: MemcfgError) -> Iterator[str]:
    for problem in error.problems:
        yield from wrapped(f"error: {_said(problem)}", indent="  ", first="")
        if problem.nearest:
            yield f"  did you mean {listed(problem.nearest)}?"
        if problem.fix:
            yield from wrapped(problem.fix, indent="  ")


def _said(problem: Problem) -> str:
    return f"`{problem.key}`: {problem.text}" if problem.key else problem.text


def _conflicts(error: ConflictError) -> Iterator[str]:
    number = len(error.conflicts)
    yield f"error: no plan satisfies this request{f' ({number} conflicts)' if number > 1 else ''}"
    yield from conflict_lines(error, "to repair it, append", "no single change repairs this")
    if error.notes:
        yield ""
        yield from note_lines(error.notes)


def conflict_lines(error: ConflictError, append: str, nothing: str) -> Iterator[str]:
    """Each conflict as a chain, then the repairs under the heading `append`."""
    several = len(error.conflicts) > 1
    for number, conflict in enumerate(error.conflicts, 1):
        yield ""
        yield from _chain(conflict, f"{number}. " if several else "")
    yield from _repairs(error.repairs, append, nothing, error.prices)


def _chain(conflict: Conflict, number: str) -> Iterator[str]:
    first = True
    for sentence in conflict.text.splitlines():
        depth = len(sentence) - len(sentence.lstrip())
        lead = f"  {number}" if first else "  " + " " * len(number)
        indent = "  " + " " * len(number) + " " * depth
        yield from wrapped(sentence.strip(), indent=f"{indent}  ", first=f"{lead}{' ' * depth}")
        first = False


def _repairs(
    repairs: Sequence[Sequence[str]], append: str, nothing: str, prices: Sequence[Price] = ()
) -> Iterator[str]:
    yield ""
    if not repairs:
        yield f"  {nothing}"
        return
    yield f"  {append}" if len(repairs) == 1 else f"  {append} one of"
    texts = [" ".join(_quoted(override) for override in repair) for repair in repairs]
    if not prices:
        yield from (f"    {text}" for text in texts)
        return
    room = max(len(text) for text in texts)
    for text, price in zip(texts, prices, strict=True):
        yield from _with_price(text, _said_of(price), room)


def _with_price(text: str, said: str, room: int) -> Iterator[str]:
    """A repair and what it needs, as a comment of the shell: the line may be pasted whole."""
    beside = f"    {text:<{room}}  # {said}"
    if len(beside) <= width():
        yield beside
        return
    yield f"    {text}"
    yield from wrapped(f"# {said}", indent="      # ", first="      ")


def price_lines(price: Price) -> list[str]:
    """What one step of a plan needs, as a sentence."""
    return wrapped(f"one step: {_said_of(price)}", indent="  ", first="")


def _said_of(price: Price) -> str:
    if price.needed_bytes is None:
        return f"not known: {price.reason}"
    verdict = f", {price.verdict}" if price.verdict else ""
    return f"{gib(price.needed_bytes)} on {price.machine}{verdict}"


def _quoted(override: str) -> str:
    """An override as a shell takes it."""
    import shlex

    return (
        override if override.startswith("~") and override[1:].replace(".", "").isidentifier() else shlex.quote(override)
    )
