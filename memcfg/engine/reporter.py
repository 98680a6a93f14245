"""How a run tells what it is doing. The engine formats nothing: `memcfg.report` turns these calls into a progress bar."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Reporter(Protocol):
    """Told in this order: stages, `begin`, then for each step `advance` (with what was logged at it, if anything),
    `end`. After an error or an interrupt `end` is still called, once, if `begin` was."""

    def stage(self, text: str) -> None:
        """What is being done before (or after) the steps, in a few words: "loading the data"."""
        ...

    def note(self, text: str) -> None:
        """Something that a user should know, at any time: where training goes on from, that it is about to stop."""
        ...

    def begin(self, steps: int) -> None:
        """Training starts; so many steps will be taken."""
        ...

    def advance(self, step: int, values: Mapping[str, Any]) -> None:
        """Step number `step` is done. `values` is the line of `metrics.jsonl`, or empty where nothing was logged."""
        ...

    def end(self) -> None:
        """No more steps will come."""
        ...


class Silent:
    """Says nothing."""

    def stage(self, text: str) -> None: ...

    def note(self, text: str) -> None: ...

    def begin(self, steps: int) -> None: ...

    def advance(self, step: int, values: Mapping[str, Any]) -> None: ...

    def end(self) -> None: ...
