"""What a single argument becomes. Each maker gives a function for `Arg.becomes`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from memcfg import Problem
from memcfg.compose.spelling import nearest
from memcfg.report.words import listed
from memcfg.report.words import value as shown
from memcfg_migrate.outcome import Outcome
from memcfg_migrate.said import Arg, Becomes, Said


def to(key: str, values: Mapping[Any, Any] | None = None, differs: str = "") -> Becomes:
    """Another name for the same thing; `values` translates those that are called differently. `differs`: what to say of
    a value that was given."""

    def becomes(said: Said, name: str, out: Outcome) -> None:
        value = said[name]
        if values is not None and not any(value == known for known in values):
            menu = listed([str(v) for v in values if v is not None])
            out.remark("learning", said.text(name), f"`{key}` has no such value: {menu} have one", said.where(name))
            return
        carry(said, name, out, key, value if values is None else values[value])
        if differs and name in said:
            out.remark("differs", said.text(name), differs)

    return becomes


def carry(said: Said, name: str, out: Outcome, key: str, value: Any) -> None:
    """Set an option to what an argument says, or to what it is by default; to nothing where it could not be read."""
    if name not in said.unread:
        out.carry(key, value, said.text(name), given=name in said)


TRACKERS: Final = ("tensorboard", "wandb", "trackio")


def trackers(key: str) -> Becomes:
    """Where metrics go: one name or several. Those that are not known are listed."""

    def becomes(said: Said, name: str, out: Outcome) -> None:
        given = said[name]
        names = [given] if isinstance(given, str) else given if isinstance(given, list) else []
        known = [tracker for tracker in names if tracker in TRACKERS]
        if known:
            out.carry(key, known, said.text(name))
        if [tracker for tracker in names if tracker not in (*TRACKERS, "none")] or (name in said and not names):
            out.remark(
                "other", said.text(name), f"trackers are {listed(TRACKERS, 'and')}; `metrics.jsonl` is always written"
            )

    return becomes


def missing(kind: str, text: str, *inert: Any) -> Becomes:
    """No equivalent. `inert`: further values that do nothing."""

    def becomes(said: Said, name: str, out: Outcome) -> None:
        value = said[name]
        if name in said and not any(type(value) is type(other) and value == other for other in inert):
            out.remark(kind, said.text(name), text)

    return becomes


def learning(text: str, *inert: Any) -> Becomes:
    """No equivalent, and it matters to what is learned."""
    return missing("learning", text, *inert)


def other(text: str, *inert: Any) -> Becomes:
    """No equivalent, and the result is the same without it."""
    return missing("other", text, *inert)


def same(text: str) -> Becomes:
    """Nothing needs to be said here."""
    return missing("same", text)


def there(text: str) -> Becomes:
    """The other program does not heed it."""
    return missing("there", text)


def around(text: str, **defaults: Any) -> Iterator[Arg]:
    """Arguments about what surrounds training, all without an equivalent for one reason."""
    for name, default in defaults.items():
        yield Arg(name, "any", default, other(text))


def inert(text: str, **defaults: Any) -> Iterator[Arg]:
    """Arguments that nothing needs to be said of."""
    for name, default in defaults.items():
        yield Arg(name, "any", default, same(text))


def translate(said: Said, out: Outcome) -> None:
    """Everything that an argument becomes by itself. What is not known, and what nothing has asked for, is a problem."""
    for name, arg in said.args.items():
        if arg.becomes is not None and (arg.default is not None or name in said):
            arg.becomes(said, name, out)


def rest(said: Said, out: Outcome) -> None:
    """What the other program does not know, what was of a wrong kind, and what nothing here has asked for."""
    for given in said.unknown():
        text = f"not among the keys of {out.program} that memcfg knows ({given.where})"
        out.problems.append(Problem(text, key=given.label, nearest=nearest(given.label, said.args)))
    out.problems += said.problems
    out.written = said.kept()
    for name in said.forgotten():
        out.remark("learning", said.text(name), "nothing here reads it beside the other keys")


def quoted(value: Any) -> str:
    return f"`{shown(value)}`"
