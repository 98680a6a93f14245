"""How hook specifications and implementations are marked. memcfg keeps its own marks beside pluggy's: the slot and its
selector on a specification; `consumes` and `produces` on an implementation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import pluggy

F = TypeVar("F", bound=Callable[..., Any])

PROJECT: Final = "memcfg"
_spec = pluggy.HookspecMarker(PROJECT)
_impl = pluggy.HookimplMarker(PROJECT)


def exclusive(selector: str) -> Callable[[F], F]:
    """Mark a specification as exclusive: called on the one plugin that provides `selector`'s resolved value."""

    def mark(spec: F) -> F:
        spec.memcfg_slot = ("exclusive", selector)  # type: ignore[attr-defined]
        return _spec(spec)

    return mark


def chain(spec: F) -> F:
    """Mark a specification as a chain: every active implementer is called, results feeding forward."""
    spec.memcfg_slot = ("chain", None)  # type: ignore[attr-defined]
    return _spec(spec)


def hookimpl(
    function: F | None = None, *, consumes: tuple[str, ...] | str = (), produces: tuple[str, ...] | str = ()
) -> Any:
    """Mark a hook implementation. In a chain, an implementation runs after all that produce what it consumes.

    `consumes` and `produces` are free names agreed between plugins (`"tokens"`, `"rows"`); a name in both means "changes
    it": it runs after every pure producer and before every pure consumer of that name."""

    def mark(impl: F) -> F:
        impl.memcfg_order = (_names(consumes), _names(produces))  # type: ignore[attr-defined]
        return _impl(impl)

    return mark if function is None else mark(function)


def _names(names: tuple[str, ...] | str) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)
