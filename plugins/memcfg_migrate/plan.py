"""From what was carried to a command: overrides as text, those that say nothing left out, resolved at once."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from memcfg import UNSET, MemcfgError
from memcfg.files import conf_root
from memcfg.solver.expr import same
from memcfg_migrate.outcome import Carried, Outcome

if TYPE_CHECKING:
    from memcfg.plan import Plan
    from memcfg.registry import Registry

CHOICES: Final = (
    "trainer.name", "model.source", "data.source", "packing.strategy", "peft.method", "quantization.mode",
    "checkpointing.mode", "offload.activations", "attention.implementation", "optimizer.name", "loss.type",
    "distributed.strategy", "reference.mode", "generation.backend", "liger.enabled", "padding_free.enabled",
)  # fmt: skip
"""Options that their group's files choose, in the order in which a command reads well; the others follow."""

STAND_INS: Final[Mapping[str, Any]] = {
    "rewards.functions": ["finished"], "gkd.teacher": "FOLDER", "data.path": "FILE", "model.path": "FOLDER",
}  # fmt: skip
"""What a plan cannot do without and a config may not tell, for a comparison of defaults alone."""

_WORD: Final = re.compile(r"[A-Za-z_./~][\w./@+-]*")
_RESERVED: Final = ("null", "true", "false", "nan", "inf", "none", "yes", "no", "on", "off", "~")


@dataclass
class Migration:
    """`overrides`: text of each, in order. `plan` or `error`: what they resolve to. `reasons`: what each comes from."""

    outcome: Outcome
    overrides: list[str] = field(default_factory=list)
    reasons: list[tuple[str, Carried]] = field(default_factory=list)
    plan: Plan | None = None
    error: MemcfgError | None = None

    @property
    def exit_code(self) -> int:
        """1 where something was not understood, 2 where what was understood has no plan."""
        return self.error.exit_code if self.error is not None else 1 if self.outcome.problems else 0

    def command(self) -> str:
        return " ".join(["python -m memcfg", *map(shell, self.overrides)])


def migrate(outcome: Outcome, more: Sequence[str], registry: Registry, config_dir: str | None) -> Migration:
    """The command, resolved. `more`: overrides that the user appended."""
    found = worded(outcome, registry)
    found.overrides += more
    _resolve(found, registry, config_dir)
    return found


def worded(outcome: Outcome, registry: Registry) -> Migration:
    """The overrides, without those that memcfg takes by itself."""
    found = Migration(outcome)
    usual = _usual(outcome, registry)
    kept = {key: c for key, c in outcome.carried.items() if c.given or _differs(usual, c)}
    for key in sorted(kept, key=_place):
        text = override(key, kept[key].value)
        found.overrides.append(text)
        found.reasons.append((text, kept[key]))
    _list_kept(found, usual)
    return found


def _list_kept(found: Migration, usual: Mapping[str, Any]) -> None:
    """A remark for what was written and neither made an override nor was spoken of: it holds here anyway."""
    out = found.outcome
    told = [*(carried.said for _, carried in found.reasons), *(remark.key for remark in out.remarks)]
    for written, default in out.written.items():
        if not any(written in text for text in told):
            key = next(
                (c.key for c in out.carried.values() if written in c.said and same(usual.get(c.key), c.value)), None
            )
            nothing = "the default, which asks for nothing" if default else "asks for nothing here"
            text = nothing if key is None else f"`{key}` is that by itself"
            out.remark("same", written, text)


def _differs(usual: Mapping[str, Any], default: Carried) -> bool:
    """Whether a default of the other program must be stated: not where nothing reads the option."""
    value = usual.get(default.key)
    return default.key not in usual or not (value is UNSET or same(value, default.value))


def _usual(outcome: Outcome, registry: Registry) -> dict[str, Any]:
    """The values that hold if only what was given is said. Choices that no plan can have (an attention that is not
    installed here) are taken back until one is left, for the comparison alone."""
    from memcfg import ConflictError
    from memcfg.compose.facts import probe
    from memcfg.solver.request import Choice, Request

    given = {key: c.value for key, c in outcome.carried.items() if c.given or key == "trainer.name"}
    for _ in range(len(given)):
        choices = {key: Choice(value, "command line") for key, value in given.items()}
        try:
            plan = registry.plan(Request(choices=choices, facts=probe(registry, given)))
        except ConflictError as error:
            options = {key for conflict in error.conflicts for key in conflict.options}
            blamed, missing = options & set(given) - {"trainer.name"}, options & set(STAND_INS) - set(given)
            if not blamed and not missing:
                break
            given = {key: value for key, value in given.items() if missing or key not in blamed}
            given |= {key: STAND_INS[key] for key in missing}
        except MemcfgError:
            break
        else:
            return {key: decision.value for key, decision in plan.decisions.items()}
    return {}


def _resolve(found: Migration, registry: Registry, config_dir: str | None) -> None:
    from memcfg.compose import resolve

    try:
        found.plan = resolve(found.overrides, registry=registry, config_dir=config_dir)
    except MemcfgError as error:
        found.error = error


def _place(key: str) -> tuple[int, str]:
    section = key.partition(".")[0]
    sections = [choice.partition(".")[0] for choice in CHOICES]
    if section == "run":
        return len(sections) + 1, key
    first = "0" if key in CHOICES else "1" if key.endswith(".path") else f"2{key}"
    return (sections.index(section) if section in sections else len(sections)), first


def override(key: str, value: Any) -> str:
    """An override as Hydra reads it: the group's choice where a file makes just this one."""
    group = key.partition(".")[0]
    if key in CHOICES and value is not None and value is not UNSET:
        name = {True: "on", False: "off"}.get(value, value) if isinstance(value, bool) else value
        if (conf_root() / group / f"{name}.yaml").is_file():
            return f"{group}={name}"
    return f"{key}={text(value)}"


def text(value: Any) -> str:
    """A value in Hydra's notation."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{text(str(k))}: {text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(text, value)) + "]"
    return repr(value) if isinstance(value, float) else _string(value) if isinstance(value, str) else str(value)


def _string(value: str) -> str:
    if _WORD.fullmatch(value) and value.lower() not in _RESERVED:
        return value
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def shell(override: str) -> str:
    """An override as a shell takes it."""
    return override if re.fullmatch(r"[\w.=/@+-]+", override) else shlex.quote(override)


def lines(found: Migration, width: int) -> Iterator[str]:
    """The command, broken with backslashes into lines that can be pasted."""
    line = "python -m memcfg"
    for word in map(shell, found.overrides):
        if len(line) + len(word) + 3 > width and line.strip():
            yield f"{line} \\"
            line = f"  {word}"
        else:
            line = f"{line} {word}"
    yield line
