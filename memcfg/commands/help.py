"""`memcfg --help`: one page, made without Hydra so that it is there at once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from memcfg.commands import COMMANDS
from memcfg.commands.command_help import function_doc
from memcfg.compose.groups import conf_folders, group_names
from memcfg.report.words import width, wrapped

if TYPE_CHECKING:
    from memcfg.registry import Registry

USAGE: Final = (
    "memcfg compiles a description of a fine-tuning run into one plan, says why every value is what it is, refuses "
    "impossible combinations, and trains.",
    "",
    "usage: memcfg [COMMAND] [FLAGS] [OVERRIDES]    (or: python -m memcfg ...)",
)

EXAMPLES: Final = {
    "memcfg packing=bfd_split": "compile and train",
    "memcfg resolve packing=bfd_split": "the plan with all its reasons",
    "memcfg -m packing=bfd,bfd_split,wrapped": "one run for each that can be",
    "memcfg --config-dir DIR experiment=NAME": "choices kept in DIR/experiment",
    "memcfg run runs/TIME/resolved.yaml": "repeat a run",
    "memcfg report runs/TIME": "how it went, as a page",
}

OVERRIDES: Final = {
    "GROUP=NAME": "choose a technique (`+GROUP=NAME` means the same)",
    "KEY=VALUE": "set one option, as in `truncation.max_length=512`",
    "GROUP=none": "switch a technique off (also `GROUP=null`, `~GROUP`)",
    "~KEY": "unset an option that a file or an earlier word set",
    "budget=24gib": "memory that the run may use",
    "assume.device=h100": "resolve for a device that is not here",
}

PRESETS: Final = {
    "experiment": "presets: choices stored together, also your own",
    "recipe": "choices that go together for one kind of run",
}
"""What the groups are for that no plugin answers for."""

FLAGS: Final = {
    "--all": "resolve: every option, not only what was decided",
    "--json": "the whole result, or what is wrong, as one object",
    "--price": "resolve: also what a step needs, or each repair",
    "--yaml": "resolve: the plan as a file that `memcfg run` reads",
    "-m, --multirun": "a sweep: one run for each combination of values",
    "--config-dir DIR": "a folder with more groups, files and experiments",
    "--local": "load the plugin `memcfg_local.py` of this folder",
    "--cfg job|hydra|all": "print the composed config instead of running",
    "--info WHAT": "how Hydra composes: defaults, searchpath, plugins ...",
    "--hydra-help": "Hydra's own help and groups",
    "--kind, --license, --into": "plugins new: what it begins with, its licence, where it goes",
    "--out FILE, --open": "report: where the page goes; show it in a browser",
    "--html FILE, --png FILE": "predict, lengths: the result as a page or a picture",
    "-q, --quiet": "results and errors only",
    "-v, --verbose": "what libraries say too, and how long it takes",
    "--no-color": "as the environment variable NO_COLOR",
    "--version": "print the version",
}


def page(registry: Registry, config_dir: str | None = None) -> str:
    """The whole help page."""
    usage = [line for text in USAGE for line in wrapped(text, "  " if text.startswith("usage") else "", first="")]
    parts = ["\n".join(usage) + "\n", _table("commands", commands(registry)), _table("overrides", OVERRIDES)]
    groups = {
        name: f"{doc}: {', '.join(names)}".removeprefix(": ")
        for name, (doc, names) in _groups(registry, config_dir).items()
    }
    return "\n".join([*parts, _table("groups", groups), _table("flags", FLAGS), _table("examples", EXAMPLES)]).rstrip()


def as_json(registry: Registry, config_dir: str | None = None) -> dict[str, Any]:
    """What `--help --json` prints."""
    groups = {name: {"doc": doc, "choices": names} for name, (doc, names) in _groups(registry, config_dir).items()}
    return {"ok": True, "commands": commands(registry), "groups": groups, "flags": FLAGS}


def commands(registry: Registry) -> dict[str, str]:
    """Every command with what it is for."""
    return {**COMMANDS, **{name: purpose(target) for name, target in registry.commands().items()}}


def _groups(registry: Registry, config_dir: str | None) -> dict[str, tuple[str, list[str]]]:
    """Every group: what it is for, and its names."""
    found = group_names([*conf_folders(registry.conf_paths()), *([Path(config_dir)] if config_dir else [])])
    docs = {**PRESETS, **registry.groups()}
    return {group: (docs.get(group, ""), names) for group, names in found.items()}


def purpose(target: str) -> str:
    """What a plugin's command is for: the first line of its function's documentation, read without importing the module."""
    doc = function_doc(target)
    first = " ".join(doc.partition("\n\n")[0].split()).partition(". ")[0].rstrip(".")
    return first[:1].lower() + first[1:] if first else f"from a plugin ({target})"


def _table(title: str, rows: Mapping[str, str]) -> str:
    """Names and what they are for, side by side, or one below the other where a name takes too much of the line."""
    room = width() // 3 + 2 if title != "examples" else width() // 2 + 2
    name_width = min(max(map(len, rows), default=0) + 2, room)
    lines = [title]
    for name, text in rows.items():
        if len(name) + 2 > name_width:
            lines += [*wrapped(name, "      ", first="  "), *wrapped(text, " " * (min(name_width, width() // 4) + 2))]
        else:
            lines += wrapped(text, " " * (name_width + 2), first=f"  {name:<{name_width}}")
    return "\n".join(lines) + "\n"
