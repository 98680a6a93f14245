"""Where a command takes a plan or an option from: overrides, or a plan that was resolved before."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from memcfg.errors import Problem, RequestError

if TYPE_CHECKING:
    from memcfg.plan import Plan
    from memcfg.registry import Registry


def plan_of(words: Sequence[str], registry: Registry, config_dir: str | None) -> Plan:
    """The plan in a file (or run folder) if that is all there is in `words`, else what these overrides resolve to."""
    if len(words) == 1 and "=" not in words[0] and not words[0].startswith("~"):
        from memcfg.planfile import FILE, load

        path = Path(words[0])
        return load(path / FILE if path.is_dir() else path)
    from memcfg.compose import resolve

    return resolve(list(words), registry=registry, config_dir=config_dir)


def option_key(name: str, registry: Registry) -> str:
    """The key of an option under its current name. Raises `RequestError` with the nearest names."""
    from memcfg.compose.spelling import nearest
    from memcfg.compose.vocabulary import SHORT, Vocabulary

    words = Vocabulary.of(registry.options, registry.theory.rules)
    key = SHORT.get(name, words.renamed.get(name, name))
    if key in words.options:
        return key
    inside = tuple(k for k in words.options if k.startswith(f"{name}."))
    near = inside[:3] or nearest(name, words.options)
    raise RequestError(Problem("a section, not an option" if inside else "no such option", key=name, nearest=near))
