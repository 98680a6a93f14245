"""The rule tables: rows of `given | then | because`, read from `tables/*.md` and asked of the installed rule base.

`given` is what a user chose and what the host is like, as `key=value` (a fact's key makes it a fact). `then` is what must
come out, and `because` the ids of the rules that must be responsible. What is expected is written by hand: from the
behaviour of the trainers that memcfg follows, and from what memcfg promises. Nothing in the tables was produced by it.

    then                      | means
    --------------------------|------------------------------------------------------------------
    `key=value` kind          | the option has this value, and its decision is of this kind
    works                     | the request resolves
    conflict                  | there is a conflict, in which every rule of `because` takes part
    refused `key`             | the request itself is wrong: this key
    note / warning / deprecation | a note of this level from the rule
    pending                   | the rule waits for a fact
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from memcfg import UNSET, ConflictError, Force, Plugin, RequestError, key
from memcfg.registry import Registry, load
from memcfg.solver import Choice, Request, Theory, resolve
from memcfg.solver.expr import PENDING, same, show
from memcfg.solver.resolve import Resolution
from memcfg.solver.rules import RemovedKey

TABLES = Path(__file__).parent / "tables"

HOST: dict[str, Any] = {
    "device.type": "cuda", "device.capability": 90, "world.size": 1, "model.type": "qwen3", "moe.model": False,
    "vision.data": False, "liger.installed": True, "loss.triton": True, "cce.installed": True, "cce.torch_linear": True, "quantization.installed": True, "vllm.installed": True, "vllm.for_cpus": False,
    "distributed.deepspeed": True, "offload.rehearsal": False, "attention.flash2": False, "attention.flash3": False,
    "attention.kernels": False, "model.attention_dropout": False,
}  # fmt: skip
"""The host of a row that does not say otherwise: one GPU, with every optional package installed."""

OTHERS = {
    "attention.implementation": ("blind", "lanes"), "data.source": ("stream",),
    "loss.type": ("focal",),
}  # fmt: skip
"""What third parties might add to open menus; values that are on the menu anyway are left out."""

WORDS = {"true": True, "false": False, "null": None, "unset": UNSET, "pending": PENDING}
CLAUSE = re.compile(r"`(?P<key>[\w.]+)=(?P<value>[^`]*)`\s*(?P<kind>\w*)$|(?P<word>\w+)\s*(?:`(?P<of>[\w.]+)`)?$")


@dataclass(frozen=True)
class Row:
    table: str
    line: int
    given: str
    then: str
    because: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.table}:{self.line} {self.given or 'nothing chosen'} -> {self.then}"


def parsed(text: str) -> Any:
    """A value as it stands in a table."""
    if text in WORDS:
        return WORDS[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return json.loads(text) if text[:1] in "[{" else text


def read_rows() -> list[Row]:
    rows = []
    for path in sorted(TABLES.glob("*.md")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if not line.startswith("|") or len(cells) != 3 or cells[0] == "given" or set(cells[1]) <= {"-"}:
                continue
            because = tuple(re.findall(r"`([^`]+)`", cells[2]))
            rows.append(Row(path.stem, number, cells[0].replace("`", ""), cells[1], because))
    return rows


ROWS = read_rows()


def request_of(theory: Theory, given: str) -> Request:
    choices: dict[str, Choice] = {}
    facts = dict(HOST)
    for word in given.split():
        key, _, value = word.partition("=")
        if key in theory.options and theory.options[key].role == "fact":
            facts[key] = parsed(value)
        else:
            choices[key] = Choice(parsed(value), "command line")
    return Request(choices=choices, facts={k: v for k, v in facts.items() if k in theory.options})


def failure(theory: Theory, row: Row) -> str | None:
    """What is not as the row says, or None."""
    found = come_to(theory, row.given)
    if isinstance(found, ConflictError):
        return _conflict_fault(row, {rule for conflict in found.conflicts for rule in conflict.rules}, str(found))
    if isinstance(found, RequestError):
        return _refusal_fault(theory, row, found)
    return next(
        (text for clause in re.split(r",\s", row.then) if (text := _clause_fault(clause.strip(), row, found))),
        None,
    )


@lru_cache(maxsize=16)  # rows that follow each other often say what comes of one request
def come_to(theory: Theory, given: str) -> Resolution | ConflictError | RequestError:
    try:
        return resolve(theory, request_of(theory, given))
    except (ConflictError, RequestError) as error:
        return error


def _conflict_fault(row: Row, rules: set[str], text: str) -> str | None:
    if row.then != "conflict":
        return f"it conflicts: {text}"
    missing = set(row.because) - rules
    return f"no part of the conflict: {', '.join(sorted(missing))}; its rules are {sorted(rules)}" if missing else None


def _refusal_fault(theory: Theory, row: Row, error: RequestError) -> str | None:
    match = CLAUSE.match(row.then)
    problem = next((p for p in error.problems if match and p.key == match["of"]), None)
    if match is None or match["word"] != "refused" or problem is None:
        return f"it is refused: {error}"
    for rule in (theory.rules.get(id) for id in row.because):
        if not isinstance(rule, RemovedKey) or rule.because not in problem.text:
            return f"it is refused for another reason: {error}"
    return None


def _clause_fault(clause: str, row: Row, resolution: Resolution) -> str | None:
    match = CLAUSE.match(clause)
    assert match is not None, f"{row}: `{clause}` is not understood"
    if match["key"]:
        return _value_fault(match, row, resolution)
    word = match["word"]
    if word == "works":
        return None
    if word == "pending":
        waiting = {rule for pending in resolution.pending for rule in pending.rules}
        missing = set(row.because) - waiting
        return f"not pending: {sorted(missing)}" if missing else None
    if word in ("note", "warning", "deprecation"):
        levels = {note.level for note in resolution.notes if note.rule in row.because}
        return None if word in levels else f"no {word} of {row.because} among {resolution.notes}"
    return f"it resolves, where `{clause}` is expected"


def _value_fault(match: re.Match[str], row: Row, resolution: Resolution) -> str | None:
    decision, wanted = resolution.decisions[match["key"]], parsed(match["value"])
    if isinstance(decision.value, float) and type(wanted) is int:
        wanted = float(wanted)
    if not same(decision.value, wanted):
        return f"`{match['key']}` is `{show(decision.value)}` ({decision.kind}: {decision.rule})"
    if match["kind"] and decision.kind != match["kind"]:
        return f"`{match['key']}` is {decision.kind}, not {match['kind']}"
    if (
        match["kind"] in ("default", "forced", "overridden", "yielded")
        and row.because
        and decision.rule not in row.because
    ):
        return f"`{match['key']}` comes from `{decision.rule}`"
    return None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test for the rows of each table that are about one plugin: a test for each row would cost more than the row."""
    if "about" in metafunc.fixturenames:
        together: dict[str, list[Row]] = {}
        for row in ROWS:
            first = row.because[0] if row.because else "no rule"
            together.setdefault(f"{row.table}: {first.partition('.')[0]}", []).append(row)
        metafunc.parametrize("about", together.values(), ids=together)


def third_party(registry: Registry) -> Plugin:
    """A plugin with an attention that cannot keep documents apart, one that needs no rows to do so, a source that is a
    stream, and a loss."""
    new = {k: tuple(v for v in values if v not in registry.options[k].values) for k, values in OTHERS.items()}
    lanes = key("attention.implementation") == "lanes"
    flat = Force(
        "attention.separation", "flat", when=lanes, id="others.lanes.flat", because="it is given where documents end"
    )
    return Plugin(name="others", rules=[flat], provides={k: values for k, values in new.items() if values})


@pytest.fixture(scope="session")
def theory() -> Theory:
    return load(extra=[third_party(load())]).theory


@pytest.fixture(scope="session")
def rows() -> list[Row]:
    return ROWS


@pytest.fixture(scope="session")
def fault() -> Callable[[Theory, Row], str | None]:
    return failure
