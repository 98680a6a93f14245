"""Every key that a request may hold, and what is said of one that it may not.

A key is valid if the user may set the option (`choice`, `setting`), if a rule answers for it (a renamed or removed
key), if it states a fact (`assume.<fact>`), or if it lies inside a setting that is itself a mapping.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from memcfg.compose.spelling import nearest, same_leaf
from memcfg.errors import Problem
from memcfg.solver.expr import Option
from memcfg.solver.rules import RemovedKey, RenameKey, Rule

GLOBAL: Final = "# @package _global_"
"""The first line of a file that sets options of any group."""

PRESETS: Final = ("recipe", "experiment")
"""Groups whose files choose options of other groups; last in the defaults list, so that they may override it."""


ASSUME = "assume."
CARD = "assume.device"
"""Stands for all facts of a card by its name: `assume.device=h100`."""
SHORT = {"budget": "budget.bytes"}
"""Sections that may be written as one value."""
SETTABLE = ("choice", "setting")


@dataclass(frozen=True)
class Vocabulary:
    options: Mapping[str, Option]
    renamed: Mapping[str, str]
    """Old key -> the key that replaced it."""
    removed: frozenset[str]

    @staticmethod
    def of(options: Mapping[str, Option], rules: Mapping[str, Rule]) -> Vocabulary:
        renamed = {rule.old: rule.new for rule in rules.values() if isinstance(rule, RenameKey)}
        removed = frozenset(rule.key for rule in rules.values() if isinstance(rule, RemovedKey))
        return Vocabulary(options, renamed, removed)

    @cached_property
    def settable(self) -> tuple[str, ...]:
        """Keys of the options that a user may set."""
        return tuple(key for key, option in self.options.items() if option.role in SETTABLE)

    @cached_property
    def facts(self) -> tuple[str, ...]:
        return tuple(key for key, option in self.options.items() if option.role == "fact")

    @cached_property
    def keys(self) -> frozenset[str]:
        """Everything that may be assigned, the dead names that a rule answers for included."""
        return frozenset((*self.settable, *self.renamed, *self.removed, *(ASSUME + fact for fact in self.facts)))

    @cached_property
    def sections(self) -> frozenset[str]:
        """Proper prefixes of keys: `packing` of `packing.strategy`."""
        return frozenset(prefix for key in self.keys for prefix in _prefixes(key))

    def option(self, key: str) -> Option | None:
        """The option that `key` sets, also under its old name."""
        return self.options.get(self.renamed.get(key, key))

    def holder(self, path: str) -> str | None:
        """The key that `path` is, or inside whose mapping it lies."""
        if path in self.keys:
            return path
        return next((p for p in _prefixes(path) if p in self.keys and self.is_mapping(p)), None)

    def is_mapping(self, key: str) -> bool:
        option = self.option(key)
        kinds = (
            option.type if option is not None and isinstance(option.type, tuple) else (getattr(option, "type", None),)
        )
        return dict in kinds

    def leaves(self, tree: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
        """Dotted path and value of everything that a nested mapping assigns, stopping at keys."""
        for name, value in tree.items():
            path = f"{prefix}{name}"
            if isinstance(value, Mapping) and path not in self.keys and (value or path in self.sections):
                yield from self.leaves(value, f"{path}.")
            else:
                yield path, value

    def fault(self, path: str, value: Any, origin: str, groups: Mapping[str, tuple[str, ...]]) -> Problem | None:
        """Why `path` may not be assigned; None if it may."""
        if "_target_" in path.split("."):
            return Problem(f"`_target_` is refused ({origin}): a config names options, it does not call code", key=path)
        if self.holder(path) is not None or path in SHORT or path == CARD:
            return None
        if path in self.sections or path in groups:
            return None if value is None else self._scalar_section(path, value, origin, groups)
        return self._not_settable(path, value, origin) or self._unknown(path, value, origin, groups)

    def _scalar_section(
        self, path: str, value: Any, origin: str, groups: Mapping[str, tuple[str, ...]]
    ) -> Problem:  # fmt: skip
        if value == {}:
            fix = f"begin it with `{GLOBAL}` and write options below" if path in PRESETS else "write options into it"
            return Problem(f"this sets nothing ({origin})", key=path, fix=fix)
        inside = tuple(key for key in self.settable if key.startswith(f"{path}."))
        if path in groups and value in groups[path]:
            fix = f"choose `{path}={value}` on the command line, or `override /{path}: {value}` under `defaults:`"
            return Problem(f"a config group, set as if it were an option ({origin})", key=path, fix=fix)
        like = tuple(key for key in inside if key.endswith((".max_length", ".enabled")))
        return Problem(f"a section, not an option ({origin})", key=path, nearest=(like or inside)[:3])

    def _not_settable(self, path: str, value: Any, origin: str) -> Problem | None:
        option = self.options.get(path)
        if option is None:
            return None
        if option.role == "fact":
            fix = f"to resolve for another host, write `{ASSUME}{path}=...`"
            return Problem(f"a fact, found on the host and not chosen ({origin})", key=path, fix=fix)
        return Problem(f"derived by rules and not chosen ({origin})", key=path)

    def _unknown(self, path: str, value: Any, origin: str, groups: Mapping[str, tuple[str, ...]]) -> Problem:
        if path.startswith(ASSUME):
            return Problem(
                f"no such fact ({origin})", key=path, nearest=nearest(path, [ASSUME + f for f in self.facts])
            )
        if path.partition(".")[0] in PRESETS:
            text = f"a preset sets options of other groups, and this is read as its own ({origin})"
            return Problem(text, key=path, fix=f"begin the file with `{GLOBAL}`")
        elsewhere = same_leaf(path, self.settable)
        if elsewhere:
            sections = " or ".join(f"`{key.rpartition('.')[0]}`" for key in elsewhere[:3])
            leaf = elsewhere[0].rpartition(".")[2]
            return Problem(
                f"no such option ({origin}): `{leaf}` belongs to {sections}", key=path, nearest=elsewhere[:3]
            )
        meant = [group for group in nearest(path, groups) if "." not in path and value in groups[group]]
        if meant:
            return Problem(f"no such group ({origin})", key=path, nearest=tuple(f"{group}={value}" for group in meant))
        candidates = self.settable if "." in path else (*self.settable, *groups)
        return Problem(f"no such option ({origin})", key=path, nearest=nearest(path, candidates))


def _prefixes(key: str) -> Iterator[str]:
    parts = key.split(".")
    return (".".join(parts[:count]) for count in range(len(parts) - 1, 0, -1))
