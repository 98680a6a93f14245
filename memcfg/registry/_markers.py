"""How hook specifications and implementations are marked. memcfg keeps its own marks beside pluggy's: the slot and its
selector on a specification; `consumes` and `produces` on an implementation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

import pluggy

F = TypeVar("F", bound=Callable[..., Any])

PROJECT: Final = "memcfg"
_spec = pluggy.HookspecMarker(PROJECT)
_impl = pluggy.HookimplMarker(PROJECT)


class Slot(NamedTuple):
    """How a hook is called. Exclusive: `selector` is the option whose value picks the plugin. Chain: `feeds` is the
    parameter through which results move on."""

    selector: str | None = None
    feeds: str | None = None


def exclusive(selector: str) -> Callable[[F], F]:
    """Mark a specification as exclusive: called on the one plugin that implements `selector`'s resolved value."""
    return _marked(Slot(selector=selector))


def chain(feeds: str) -> Callable[[F], F]:
    """Mark a specification as a chain: every active implementer is called, its result becoming the next one's `feeds`."""
    return _marked(Slot(feeds=feeds))


def _marked(slot: Slot) -> Callable[[F], F]:
    def mark(spec: F) -> F:
        spec.memcfg_slot = slot  # type: ignore[attr-defined]
        return _spec(spec)

    return mark


def hookimpl(
    function: F | None = None, *, consumes: tuple[str, ...] | str = (), produces: tuple[str, ...] | str = ()
) -> Any:
    """Mark a hook implementation. In a chain, an implementation runs after all that produce what it consumes.

    `consumes` and `produces` are free names agreed between plugins (`"tokens"`, `"rows"`); a name in both means "changes
    it": it runs after every pure producer and before every pure consumer of that name. Every implementation also
    produces its plugin's own name, so `consumes="truncation"` means "after that plugin"."""

    def mark(impl: F) -> F:
        impl.memcfg_order = (_names(consumes), _names(produces))  # type: ignore[attr-defined]
        return _impl(impl)

    return mark if function is None else mark(function)


def _names(names: tuple[str, ...] | str) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)
