"""`memcfg lengths data=...`: the command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memcfg import MemcfgError
from memcfg.commands.arguments import Arguments, read
from memcfg.report.console import results_alone

if TYPE_CHECKING:
    from memcfg.plan import Plan
    from memcfg.registry import Registry
    from memcfg.report.console import Terminal
    from memcfg_packing.lengths.profile import Profile

MEMORY = "--memory"


def main(words: Sequence[str]) -> int:
    """How long documents are, and what each `truncation.max_length` would cost. Reads `--json`, `--html FILE`, `--png FILE`, `--quiet`, and `--memory`,
    which predicts the peak memory of each candidate."""
    arguments = read([word for word in words if word != MEMORY])
    arguments.command, overrides = "lengths", [w for w in (arguments.command, *arguments.rest) if w is not None]
    terminal = arguments.terminal()
    arguments.refuse_flags("json", "html", "png")
    with results_alone():
        return _lengths(overrides, arguments, terminal, memory=MEMORY in words)


def _lengths(overrides: Sequence[str], arguments: Arguments, terminal: Terminal, *, memory: bool) -> int:
    from memcfg.compose.request import installed

    registry = installed()
    terminal.say("reading and tokenising ...")
    profile, _ = profiled(overrides, registry, arguments.config_dir)
    if memory:
        terminal.say("simulating one step for each candidate ...")
        profile = with_memory(profile, overrides, registry, arguments.config_dir, terminal)
    if arguments.has("json"):
        from memcfg.report import jsonform

        terminal.show(jsonform.text({"ok": True} | profile.to_dict()))
    else:
        from memcfg_packing.lengths.text import show

        terminal.show(*show(profile))
    _pictures(arguments, terminal, profile)
    return 0


def profiled(overrides: Sequence[str], registry: Registry, config_dir: str | None = None) -> tuple[Profile, Plan]:
    """The profile of a request's documents, and the plan as requested."""
    from memcfg_packing.lengths.measure import measure
    from memcfg_packing.lengths.profile import profile

    found, plan = measure(overrides, registry, config_dir)
    length = plan.decisions.get("truncation.max_length")
    chosen = plan.get("truncation.max_length") if length is not None and length.kind == "you" else None
    return profile(
        found.lengths, batch=plan["run.batch_size"], chosen=chosen, longest=found.longest, bare=found.bare,
        dressed=found.dressed,
    ), plan  # fmt: skip


def with_memory(
    profile: Profile, overrides: Sequence[str], registry: Registry, config_dir: str | None, terminal: Terminal
) -> Profile:
    """The profile with the predicted peak of each candidate. Where one cannot be predicted, it has none and the reason is
    said; where none can, that is the error."""
    from memcfg.compose import resolve
    from memcfg.planner.predict import predict

    found, faults = [], []
    for candidate in profile.candidates:
        words = [*overrides, f"truncation.max_length={candidate.length}"]
        try:
            plan = resolve(words, registry=registry, config_dir=config_dir)
            found.append(replace(candidate, memory=int(predict(plan, registry).allocated_bytes)))
        except MemcfgError as error:
            faults.append(error)
            found.append(candidate)
            terminal.say(f"no peak for a length of {candidate.length}: {str(error).splitlines()[0]}")
    if len(faults) == len(found):
        raise faults[0]
    return replace(profile, candidates=found)


def _pictures(arguments: Arguments, terminal: Terminal, profile: Profile) -> None:
    """The files that were asked for."""
    from memcfg.files import write_atomic
    from memcfg_packing.lengths.pictures import page_of, png

    makers: dict[str, Any] = {"html": page_of, "png": png}
    for name, make in makers.items():
        if arguments.has(name):
            write_atomic(Path(arguments.values[name]), make(profile))
            terminal.say(f"wrote {arguments.values[name]}")
