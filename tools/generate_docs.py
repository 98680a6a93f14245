"""Writes the pages that follow from the rules: docs/compatibility.md and docs/cheat-sheet.md, the sections about options
and rules of other pages (see rule_sections.py), and the list of behaviours of TRL that no rule carries,
tests/conformance/NOT_CARRIED.md; and the pages that follow from the code (see `api_reference`).

    python tools/generate_docs.py            # write them
    python tools/generate_docs.py --check    # exit code 1 if one is out of date

A technique is a file of a config group, so a new group file or rule shows up here by itself.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent))  # for those who import this file by its path
import api_reference
import rule_sections

from memcfg import UNSET, ConflictError, Default
from memcfg.registry import Registry, load
from memcfg.solver import Choice, Request, Resolution, Theory, resolve
from memcfg.solver.asked import normalise
from memcfg.solver.check import failed
from memcfg.solver.expr import same, show
from memcfg.solver.problem import Problem
from memcfg.solver.propagate import Unsatisfiable

ROOT = Path(__file__).resolve().parent.parent
NO_TECHNIQUES = ("trainer", "model", "data", "recipe", "experiment")
OFF = ("none", "off")
GPU: dict[str, Any] = {"device.type": "cuda", "device.capability": 90, "world.size": 1, "model.type": "qwen3"}
CPU: dict[str, Any] = {**GPU, "device.type": "cpu", "device.capability": 0}
GIVEN: dict[Any, dict[str, Any]] = {"gkd": {"gkd.teacher": "FOLDER"}}
"""What a trainer cannot go without."""
BARRED = ("moe.model", "vision.data", "offload.rehearsal", "model.attention_dropout")
"""Facts that are false on the host of these pages; every other yes-or-no fact (an installed package) is true."""


@dataclass(frozen=True)
class Technique:
    group: str
    name: str
    choices: Mapping[str, Any] = field(hash=False)

    def __str__(self) -> str:
        return f"{self.group}={self.name}"


@dataclass(frozen=True)
class Cell:
    """How a technique fares under a trainer. `needs` are choices to add, `rules` what is responsible."""

    verdict: str
    rules: tuple[str, ...] = ()
    needs: Mapping[str, Any] = field(default_factory=dict, hash=False)


class Rules:
    """Questions to the installed rule base, first-party plugins only."""

    def __init__(self, registry: Registry) -> None:
        ours = [p.plugin for p in registry.plugins if p.first_party and p.plugin is not None]
        self.registry = registry
        self.declared = {option.key for plugin in ours for option in plugin.options}
        self.menus = {value for plugin in ours for values in plugin.provides.values() for value in values}
        self.theory: Theory = registry.theory
        trainers = [v for v in self.theory.options["trainer.name"].values if v in self.menus]
        self.trainers = sorted(trainers, key=lambda name: (name != "sft", name))
        self._resolved: dict[Any, bool] = {}
        self._cells: dict[tuple[str, Technique], Cell] = {}

    @cached_property
    def techniques(self) -> list[Technique]:
        found = []
        for path in sorted((ROOT / "conf").glob("*/*.yaml")):
            choices = dict(flat(yaml.safe_load(path.read_text(encoding="utf-8")) or {}, f"{path.parent.name}."))
            known = choices.keys() <= self.declared and all(self.on_menu(k, v) for k, v in choices.items())
            if path.parent.name not in NO_TECHNIQUES and path.stem not in OFF and known and choices:
                found.append(Technique(path.parent.name, path.stem, choices))
        return found

    def on_menu(self, key: str, value: Any) -> bool:
        """Whether it is a value of its own, not the old name of another."""
        option = self.theory.options[key]
        return option.kind != "enum" or any(same(value, v) for v in option.values)

    def facts(self, host: Mapping[str, Any]) -> dict[str, Any]:
        packages = {k: k not in BARRED for k, o in self.theory.options.items() if o.role == "fact" and o.kind == "bool"}
        return {**packages, **host}

    def request(self, choices: Mapping[str, Any], host: Mapping[str, Any] = GPU) -> Request:
        chosen = {**GIVEN.get(choices.get("trainer.name"), {}), **choices}
        return Request({k: Choice(v, "command line") for k, v in chosen.items()}, self.facts(host))

    def ask(self, choices: Mapping[str, Any], host: Mapping[str, Any] = GPU) -> Resolution:
        return resolve(self.theory, self.request(choices, host))

    def resolves(self, choices: Mapping[str, Any], host: Mapping[str, Any] = GPU) -> bool:
        """Whether the choices go together; says so without the cost of an explanation. Asked often of the same."""
        question = (frozenset(choices.items()), frozenset(host.items()))
        if question not in self._resolved:
            self._resolved[question] = self._resolves(choices, host)
        return self._resolved[question]

    def _resolves(self, choices: Mapping[str, Any], host: Mapping[str, Any]) -> bool:
        asked = normalise(self.theory, self.request(choices, host))
        try:
            answer = Problem(self.theory.program(asked.pending), asked.values, asked.facts).solve()
        except Unsatisfiable:
            return False
        return not answer.unread() and not failed(answer)

    def cell(self, trainer: str, technique: Technique) -> Cell:
        if (trainer, technique) not in self._cells:
            self._cells[trainer, technique] = self._cell(trainer, technique)
        return self._cells[trainer, technique]

    def _cell(self, trainer: str, technique: Technique) -> Cell:
        choices = {"trainer.name": trainer, **technique.choices}
        try:
            resolution = self.ask(choices)
        except ConflictError as error:
            return self.conflict(choices, error)
        return self.success(trainer, resolution)

    def conflict(self, choices: Mapping[str, Any], error: ConflictError) -> Cell:
        """A technique that lacks another is no conflict: a repair then adds choices and takes none back."""
        for repair in error.repairs:
            needs = {k: parsed(v) for k, _, v in (text.partition("=") for text in repair)}
            if not any(key.startswith("~") or key in choices for key in needs):
                return Cell("needs", self.speaking(error.conflicts[0].rules), needs)
        return Cell("conflict", self.speaking(error.conflicts[0].rules))

    def speaking(self, rules: tuple[str, ...]) -> tuple[str, ...]:
        """Those of a conflict's rules that say why, apart from its defaults and from what speaks of `GIVEN`."""
        ours = {f"{key}.outside" for given in GIVEN.values() for key in given}
        return tuple(r for r in rules if r not in ours and not isinstance(self.theory.rules.get(r), Default))

    def success(self, trainer: str, got: Resolution) -> Cell:
        usual = self.ask({"trainer.name": trainer}).decisions
        for kind, verdict in (("overridden", "falls back"), ("fallback", "falls back"), ("forced", "forces")):
            found = [
                d
                for k, d in got.decisions.items()
                if d.kind == kind and d.role == "choice" and not same(d.value, usual[k].value)
            ]
            if found:
                return Cell(verdict, tuple(d.rule or "" for d in found))
        return Cell("works")

    def missing(self, choices: Mapping[str, Any]) -> frozenset[str]:
        """What this version can plan but not run."""
        notes = self.registry.plan(self.request(choices)).notes
        return frozenset(note.text for note in notes if note.rule.endswith(".not_yet"))


def flat(tree: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def parsed(text: str) -> Any:
    return yaml.safe_load(text)


def keyed(choices: Mapping[str, Any]) -> str:
    return " ".join(f"`{k}={show(v)}`" for k, v in choices.items())


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows]]


NOTICE = "<!-- Written by tools/generate_docs.py from the rules. Change those, not this page. -->"


def compatibility(rules: Rules) -> str:
    cells = {(t, q): rules.cell(t, q) for q in rules.techniques for t in rules.trainers}
    used = sorted({rule for cell in cells.values() for rule in cell.rules if rule in rules.theory.rules})
    number = {rule: n for n, rule in enumerate(used, 1)}

    def text(cell: Cell) -> str:
        notes = "".join(f"[{number[r]}]" for r in cell.rules if r in number)
        return f"{f'needs {keyed(cell.needs)}' if cell.verdict == 'needs' else cell.verdict} {notes}".strip()

    def row(technique: Technique) -> list[str]:
        taken = {t: cells[t, technique] for t in rules.trainers}
        return [f"`{technique}`{mark(rules, technique, taken)}", *(text(cell) for cell in taken.values())]

    head = [f"`{t}`" + " †" * bool(rules.missing({"trainer.name": t})) for t in rules.trainers]
    reasons = [f"{n}. `{rule}`: {rules.theory.rules[rule].because}" for rule, n in number.items()]
    return page(
        "# What goes with what",
        "Each technique under each trainer, on a machine with one GPU and every optional package. *works*: the plan has it "
        "as asked. *forces*: another option follows. *needs*: together with another choice. *falls back*: the request is "
        "answered by another value, with a warning. *conflict*: refused before anything is loaded. † marks trainers and "
        "techniques that can be planned, and are refused at the start of a run: this version cannot run them yet.",
        *table(["technique", *head], [row(technique) for technique in rules.techniques]),
        "## Rules",
        *reasons,
    )


def mark(rules: Rules, technique: Technique, cells: Mapping[str, Cell]) -> str:
    """A dagger where the technique itself, not the trainer, cannot be run yet."""
    trainer = next(t for t, cell in cells.items() if cell.verdict != "conflict")
    choices = {"trainer.name": trainer, **technique.choices, **cells[trainer].needs}
    return " †" if rules.missing(choices) - rules.missing({"trainer.name": trainer}) else ""


def cheat_sheet(rules: Rules) -> str:
    rows = [sheet_row(rules, technique) for technique in rules.techniques]
    head = ["technique", "set it with", "trainers", "otherwise", "limit", "combines with"]
    return page(
        "# Cheat sheet",
        "Every technique: the key that it sets, the trainers that take it, the value that holds when nothing is chosen, what "
        "it needs of the machine, and what it goes together with (under the first trainer of its row). Why, and what is "
        "forced: [compatibility](compatibility.md). Any of them is chosen on the command line, as in "
        "`python -m memcfg packing=bfd_split`.",
        *table(head, rows),
    )


def sheet_row(rules: Rules, technique: Technique) -> list[str]:
    cells = {t: rules.cell(t, technique) for t in rules.trainers}
    takers = [t for t, cell in cells.items() if cell.verdict != "conflict"]
    first = takers[0]
    base = {"trainer.name": first, **technique.choices, **cells[first].needs}
    usual = rules.ask({"trainer.name": first}).decisions
    otherwise = {k: usual[k].value for k in technique.choices if usual[k].value is not UNSET}
    trainers = "all" if len(takers) == len(rules.trainers) else ", ".join(f"`{t}`" for t in takers)
    return [
        f"`{technique}`", keyed(technique.choices), trainers, keyed(otherwise) or "nothing", limits(rules, base),
        partners(rules, technique, base),
    ]  # fmt: skip


def limits(rules: Rules, base: Mapping[str, Any]) -> str:
    """What of the host the choices cannot do without, found by taking it away."""
    found = [] if rules.resolves(base, CPU) else ["a GPU"]
    for key, option in rules.theory.options.items():
        if (
            option.role == "fact"
            and option.kind == "bool"
            and key not in BARRED
            and not rules.resolves(base, {**GPU, key: False})
        ):
            found.append(f"`{key}`")
    return ", ".join(found) or "none"


def partners(rules: Rules, technique: Technique, base: Mapping[str, Any]) -> str:
    others = [q for q in rules.techniques if q.group != technique.group]
    yes = [q for q in others if rules.resolves({**q.choices, **base})]
    able = [q for q in others if rules.resolves({"trainer.name": base["trainer.name"], **q.choices})]
    no = [q for q in able if q not in yes]
    return f"everything but {', '.join(f'`{q}`' for q in no)}" if no else "everything that its trainers take"


def not_carried() -> str:
    with (ROOT / "tests/conformance/trl_rows.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    works = [[r["id"], r["behaviour"], f"`{r['by']}`", r["why"]] for r in rows if r["carried"] == "works"]
    others = [[r["id"], r["behaviour"], r["why"]] for r in rows if r["carried"] == "no"]
    return page(
        "# Behaviours of TRL that no rule carries",
        "The rule base was written against a digest of how two releases of TRL behave (1.10 and 1.16), a row for each "
        "behaviour. Most rows became a rule or an option: `trl_rows.csv` says which. These did not.",
        "## There is nothing to forbid",
        "The combination simply works; the row of the rule tables that asserts it is named.",
        *table(["id", "behaviour of TRL", "given", "remark"], works),
        "## Left out",
        *table(["id", "behaviour of TRL", "why it is left out"], others),
    )


def page(*blocks: str) -> str:
    """Blocks with blank lines between them; lines of a table and of a list stay together."""
    text = f"{NOTICE}\n"
    for before, block in zip(("", *blocks), blocks, strict=False):
        joined = before[:1] == block[:1] == "|" or (before[:1].isdigit() and block[:1].isdigit())
        text += ("\n" if joined else "\n\n") * bool(before) + ("\n" if not before else "") + block
    return text + "\n"


def pages() -> dict[Path, str]:
    rules = Rules(load())
    return {
        **rule_sections.pages(ROOT / "docs", rules.registry),
        ROOT / "docs/compatibility.md": compatibility(rules),
        ROOT / "docs/cheat-sheet.md": cheat_sheet(rules),
        ROOT / "tests/conformance/NOT_CARRIED.md": not_carried(),
        **api_reference.pages(ROOT),
    }


def stale() -> list[Path]:
    """The pages that do not say what the rules say."""
    return [p for p, text in pages().items() if not p.exists() or p.read_text(encoding="utf-8") != text]


def main(argv: list[str]) -> int:
    if "--check" in argv:
        for path in (found := stale()):
            print(f"{path.relative_to(ROOT)} is out of date: run `python tools/generate_docs.py`", file=sys.stderr)
        return 1 if found else 0
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
