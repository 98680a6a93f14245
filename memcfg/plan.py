"""The frozen plan: every option's value and the reason for it. The only thing the engine and the hooks are given.

`plan["packing.strategy"]` is the value. A key that no installed plugin declares raises `KeyError`; a declared key that
nothing set gives `None` from `plan.get(key)` and `UNSET` from `plan[key]`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from memcfg.errors import Note
from memcfg.solver.decision import Decision, Pending
from memcfg.solver.expr import UNSET


@dataclass(frozen=True)
class Plan(Mapping[str, Any]):
    decisions: Mapping[str, Decision]
    active: tuple[str, ...] = ()
    """Names of the plugins whose `active` condition holds, in loading order."""
    providers: Mapping[str, str] = field(default_factory=dict)
    """`option key` -> plugin that implements its resolved value, for every open option."""
    notes: tuple[Note, ...] = ()
    pending: tuple[Pending, ...] = ()
    assumed: tuple[str, ...] = ()
    """Facts that the user assumed instead of letting them be probed. Training refuses a plan that has any."""
    fact_reads: tuple[str, ...] = ()
    """Facts that some rule read while this plan was made: a host where they differ cannot run it."""
    versions: Mapping[str, str] = field(default_factory=dict)

    def __getitem__(self, key: str) -> Any:
        return self.decisions[key].value

    def __iter__(self) -> Iterator[str]:
        return iter(self.decisions)

    def __len__(self) -> int:
        return len(self.decisions)

    def get(self, key: str, default: Any = None) -> Any:
        """The value, or `default` where the key is unset or not declared by any installed plugin."""
        decision = self.decisions.get(key)
        return default if decision is None or decision.value is UNSET else decision.value

    @property
    def device(self) -> str:
        """The device type that the plan was made for, `cpu` or `cuda`. Code branches on this, never on a tensor."""
        return str(self.get("device.type", "cpu"))
