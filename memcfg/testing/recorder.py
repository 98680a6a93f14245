"""What hooks were called with and gave back, between the engine and the real hooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memcfg.registry.hooks import Hooks


@dataclass(frozen=True)
class Recorded:
    """One hook call of the engine's. `plugins`: who answered, in order; `ms`: how long it took, all together."""

    hook: str
    plugins: tuple[str, ...]
    ms: float
    arguments: Mapping[str, Any]
    result: Any


class HookRecorder:
    """Stands where hooks do: `build(plan, HookRecorder(registry.hooks(plan)))`. `calls` is what went through it."""

    def __init__(self, hooks: Hooks) -> None:
        self.hooks = hooks
        self.calls: list[Recorded] = []

    def of(self, hook: str) -> list[Recorded]:
        """The calls of one hook, named as the specification is or without its prefix."""
        return [call for call in self.calls if call.hook == hook.removeprefix("memcfg_")]

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.hooks, name)
        if name.startswith("_") or name in ("require", "implementers", "plan"):
            return found
        return self._recording(name, found)

    def _recording(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def recording(**arguments: Any) -> Any:
            before = len(self.hooks.calls)
            result = call(**arguments)
            made = [c for c in self.hooks.calls[before:] if c.hook == f"memcfg_{name}"]
            plugins, ms = tuple(c.plugin for c in made), sum(c.ms for c in made)
            self.calls.append(Recorded(name, plugins, ms, arguments, result))
            return result

        return recording
