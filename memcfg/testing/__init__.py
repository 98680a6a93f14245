"""The kit for authors of plugins: what a plugin's own tests need.

    def test_it_scores_tokens(lab):                      # the fixture comes with memcfg, for pytest
        lab.add(plugin, "memcfg")                        # nothing else is installed, as far as the lab knows
        answer = lab.resolve("loss=acme", acme__power=3)
        assert answer.value("loss.type") == "acme"

    def test_nobody_else_notices():
        assert_conservative(plugin)

Nothing here needs pytest, and torch is loaded only by what trains: `first_update`, `assert_same_training`, `PeakMemory`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memcfg.testing.conservative import assert_conservative
    from memcfg.testing.imports import assert_light_import
    from memcfg.testing.lab import Answer, Lab
    from memcfg.testing.linting import assert_lint_clean
    from memcfg.testing.memory import PeakMemory
    from memcfg.testing.recorder import HookRecorder
    from memcfg.testing.rules import assert_rules_exercised
    from memcfg.testing.training import Update, assert_same_training, first_update

_HOMES = {
    "Answer": "lab",
    "HookRecorder": "recorder",
    "Lab": "lab",
    "PeakMemory": "memory",
    "Update": "training",
    "assert_conservative": "conservative",
    "assert_light_import": "imports",
    "assert_lint_clean": "linting",
    "assert_rules_exercised": "rules",
    "assert_same_training": "training",
    "first_update": "training",
}

__all__ = [
    "Answer", "HookRecorder", "Lab", "PeakMemory", "Update", "assert_conservative", "assert_light_import",
    "assert_lint_clean", "assert_rules_exercised", "assert_same_training", "first_update",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
    return getattr(importlib.import_module(f"memcfg.testing.{_HOMES[name]}"), name)
