"""How long the rules take: memcfg's solver beside clingo and PySAT, on the installed rules and on made-up larger ones.

    pip install clingo python-sat
    python benchmarks/solver.py                            everything, a few minutes
    python benchmarks/solver.py --sizes 200,1000 --out results/solver.json

All times are processor time of this process, in milliseconds: a busy machine changes them little. `lower` is what loading
costs once (checks, domains, clauses); after it, `resolve` answers a request whole (spelling, choices, defaults, the reason
for every value), and `solve` is the search in it alone, which is what the other two are given: the same clauses, by clingo
and by PySAT (Glucose 4), with the choices as assumptions. `warm`: their clauses are loaded already, as memcfg's are;
`cold`: loading counted. They look for any model, memcfg for the first in the order of the defaults. That all three agree on
which requests have a model is checked on every one.

The made-up rule bases have the shape of the installed one: a few options that most rules read, defaults by condition,
forces, prohibitions, options that nothing reads in places.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from memcfg import UNSET, ConflictError, Default, Enum, Fallback, Forbid, Force, Ignored, Option, Require
from memcfg.solver import Choice, Request, Theory, resolve
from memcfg.solver.asked import normalise
from memcfg.solver.explain import minimal_conflicts
from memcfg.solver.expr import In
from memcfg.solver.grid import valid_points
from memcfg.solver.problem import Problem
from memcfg.solver.propagate import Unsatisfiable
from memcfg.solver.rules import Rule

TARGETS = {
    "200": 2.0,
    "installed": 6.0,
    "1000": 20.0,
    "10000": 300.0,
    "conflict": 10.0,
    "repairs": 50.0,
    "grid": 3000.0,
}
"""Milliseconds."""

HUBS = 3
"""Options of a made-up rule base that most of its rules read."""


def milliseconds(action: Callable[[], Any]) -> float:
    begin = time.process_time()
    action()
    return (time.process_time() - begin) * 1e3


def spread(times: Sequence[float]) -> dict[str, float]:
    ordered = sorted(times)
    return {
        "median": round(statistics.median(ordered), 3),
        "p95": round(ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))], 3),
        "worst": round(ordered[-1], 3),
    }


# -------------------------------------------------------------------------------------------------------- made-up rules


def made_up(size: int, seed: int = 0) -> tuple[list[Option], list[Rule]]:
    """`size` rules over about half as many options."""
    chance = random.Random(seed)
    options = [
        Enum(f"x.o{at}", ("a", "b", "c", "d")[: chance.choice((2, 3, 4))], doc="") for at in range(size * 2 // 5)
    ]
    rules: list[Rule] = [
        Default(o, *_shuffled(chance, o.values)[:2], id=f"x.d{o.key[3:]}", because="x") for o in options
    ]
    for at in range(len(rules), size):
        rules.append(_rule(chance, at, options, rules))
    return options, rules


def _shuffled(chance: random.Random, values: Iterable[Any]) -> list[Any]:
    found = list(values)
    chance.shuffle(found)
    return found


def _rule(chance: random.Random, at: int, options: list[Option], earlier: list[Rule]) -> Rule:
    """One rule on an option, by the value of a hub and of an option not far before it."""
    target_at = chance.randrange(HUBS, len(options))
    target = options[target_at]
    hub = options[chance.randrange(HUBS)]
    near = options[chance.randrange(max(0, target_at - 40), target_at)]
    one = In(hub.key, (chance.choice(hub.values),))
    two = one & In(near.key, (chance.choice(near.values),)) if near is not hub else one
    value = chance.choice(target.values)
    kind = chance.random()
    name: dict[str, Any] = {"id": f"x.r{at}", "because": "x"}
    if kind < 0.35:
        rivals = [d.id for d in earlier[len(options) :] if isinstance(d, Default) and d.key == target.key]
        return Default(target, value, when=two, supersedes=rivals, **name)
    if kind < 0.5:
        return Force(target, value, when=two & ~In(near.key, near.values[:1]), on_user="override", **name)
    if kind < 0.8:
        return Forbid(two & In(target.key, (value,)), **name)
    if kind < 0.85:
        return Require(~In(target.key, (value,)), when=two, **name)
    if kind < 0.9:
        return Fallback(target, value, to=next(v for v in target.values if v != value), when=two, **name)
    return Ignored(target, when=two, **name)


def requests(theory: Theory, number: int, facts: Sequence[dict[str, Any]], seed: int = 1) -> list[Request]:
    """Random requests of one to six choices."""
    chance = random.Random(seed)
    free = [o for o in theory.options.values() if o.role == "choice" and o.values and o.key in theory.variables.index]
    found = []
    for _ in range(number):
        chosen = chance.sample(free, chance.randint(1, 6))
        choices = {o.key: Choice(chance.choice(o.values), "command line") for o in chosen}
        found.append(Request(choices, chance.choice(facts)))
    return found


# -------------------------------------------------------------------------------------------------------------- rivals


class Clauses:
    """The clauses of a theory, each option's support behind a switch that a request turns off."""

    def __init__(self, theory: Theory) -> None:
        self.theory, program = theory, theory.program()
        self.program = program
        self.numbers: dict[tuple[int, int], int] = {}
        for var, full in enumerate(program.full):
            for bit in _bits(full):
                self.numbers[var, bit] = len(self.numbers) + 1
        self.switch = {var: len(self.numbers) + 1 + at for at, var in enumerate(program.support)}
        self.clauses = [[self.numbers[v, b] for v, m in clause for b in _bits(m)] for clause, _ in program.hard]
        for var, tagged in program.support.items():
            self.clauses += [
                [-self.switch[var], *(self.numbers[v, b] for v, m in clause for b in _bits(m))] for clause, _ in tagged
            ]
        self.domains = [[self.numbers[var, bit] for bit in _bits(full)] for var, full in enumerate(program.full)]

    def assumptions(self, request: Request) -> list[int]:
        """The request as literals. Choices that a rule may answer otherwise are left out of the comparison."""
        index, domains = self.program.variables.index, self.program.variables.domains
        given = {**{k: c.value for k, c in request.choices.items()}, **request.facts}
        fixed = {index[k]: domains[index[k]].bit(v) for k, v in given.items() if k in index}
        on = [switch for var, switch in self.switch.items() if var not in fixed]
        return [*(self.numbers[var, bit] for var, bit in fixed.items()), *on]


def _bits(mask: int) -> Iterator[int]:
    while mask:
        yield mask & -mask
        mask &= mask - 1


class Sat:
    name = "PySAT (Glucose 4)"

    def __init__(self, clauses: Clauses) -> None:
        from pysat.solvers import Solver

        self.solver = Solver(name="glucose4", bootstrap_with=clauses.clauses)
        for domain in clauses.domains:
            self.solver.add_clause(domain)
            for at, one in enumerate(domain):
                for other in domain[at + 1 :]:
                    self.solver.add_clause([-one, -other])

    def solve(self, assumptions: list[int]) -> bool:
        found = bool(self.solver.solve(assumptions=assumptions))
        if found:
            self.solver.get_model()
        return found

    def close(self) -> None:
        self.solver.delete()


class Asp:
    name = "clingo"

    def __init__(self, clauses: Clauses) -> None:
        import clingo

        self.control = clingo.Control(["--warn=none"])
        switches = set(clauses.switch.values())
        lines = [f"1 {{ {'; '.join(f'v({n})' for n in domain)} }} 1." for domain in clauses.domains]
        lines += [f"{{ v({n}) }}." for n in switches]
        lines += [f":- {', '.join(f'not v({n})' if n > 0 else f'v({-n})' for n in c)}." for c in clauses.clauses if c]
        self.control.add("base", [], "\n".join(lines))
        self.control.ground([("base", [])])
        atoms = {
            atom.symbol.arguments[0].number: atom.literal for atom in self.control.symbolic_atoms.by_signature("v", 1)
        }
        self.atoms = atoms

    def solve(self, assumptions: list[int]) -> bool:
        return bool(self.control.solve(assumptions=[self.atoms[n] for n in assumptions]).satisfiable)

    def close(self) -> None:
        pass


def rivals(clauses: Clauses, asked: Sequence[list[int]], truth: Sequence[bool]) -> dict[str, Any]:
    """Times of the others on the same questions, and whether they agree on each."""
    found: dict[str, Any] = {}
    for make in (Asp, Sat):
        try:
            load = milliseconds(lambda: make(clauses).close())  # noqa: B023
        except ImportError:
            found[make.name] = "not installed"
            continue
        solver, times, answers = make(clauses), [], []
        for assumptions in asked:
            times.append(milliseconds(lambda: answers.append(solver.solve(assumptions))))  # noqa: B023
        solver.close()
        warm = spread(times)
        agreed = sum(a is b for a, b in zip(answers, truth, strict=True))
        found[make.name] = {"load": round(load, 2), "warm": warm, "cold_median": round(load + warm["median"], 2),
                            "agrees": f"{agreed} of {len(truth)}"}  # fmt: skip
    return found


# --------------------------------------------------------------------------------------------------------------- memcfg


def measured(theory: Theory, asked: Sequence[Request]) -> dict[str, Any]:
    """memcfg's times over these requests, conflicts apart."""
    good: list[float] = []
    conflicts: list[float] = []
    repairs: list[float] = []
    solved: list[float] = []
    clauses = Clauses(theory)
    plain: list[tuple[list[int], bool]] = []
    for request in asked:
        kept = normalise(theory, request)
        problem = Problem(theory.program(kept.pending), kept.values, kept.facts)
        outcome = _outcome(theory, request)
        if outcome is None:
            good.append(milliseconds(lambda: _outcome(theory, request)))  # noqa: B023
        else:
            conflicts.append(milliseconds(lambda: minimal_conflicts(_again(theory, request))))  # noqa: B023
            repairs.append(milliseconds(lambda: outcome.repairs))  # noqa: B023
        strict = Problem(problem.program, problem.choices, problem.facts, muted=frozenset(theory.rules))
        answers: list[bool] = []
        solved.append(milliseconds(lambda: answers.append(_solvable(strict))))  # noqa: B023
        plain.append((clauses.assumptions(request), answers[0]))
    return {
        "resolve": spread(good) if good else None,
        "requests": len(asked),
        "conflicting": len(conflicts),
        "conflicts": spread(conflicts) if conflicts else None,
        "repairs": spread(repairs) if repairs else None,
        "solve": spread(solved),
        "others": rivals(clauses, [a for a, _ in plain], [t for _, t in plain]),
    }


def _outcome(theory: Theory, request: Request) -> ConflictError | None:
    try:
        resolve(theory, request)
    except ConflictError as error:
        return error
    return None


def _again(theory: Theory, request: Request) -> Problem:
    kept = normalise(theory, request)
    return Problem(theory.program(kept.pending), kept.values, kept.facts, heeds_ignored=True)


def _solvable(problem: Problem) -> bool:
    try:
        problem.solve()
    except Unsatisfiable:
        return False
    return True


def lowered(options: Sequence[Option], rules: Sequence[Rule]) -> tuple[Theory, float]:
    """A theory with its clauses, and what making it took."""
    kept: list[Theory] = []

    def make() -> None:
        kept.append(Theory.build(options, rules))
        kept[-1].program()

    took = milliseconds(make)
    return kept[-1], took


# ----------------------------------------------------------------------------------------------------------------- cases


def synthetic(size: int, number: int) -> dict[str, Any]:
    theory, took = lowered(*made_up(size))
    return {"rules": len(theory.rules), "options": len(theory.options), "lower": round(took, 1)} | measured(
        theory, requests(theory, number, [{}])
    )


HOSTS = [
    {"device.type": "cpu", "device.capability": 0},
    {"device.type": "cuda", "device.capability": 80},
    {"device.type": "cuda", "device.capability": 90},
]


def installed(number: int) -> dict[str, Any]:
    from memcfg.compose.facts import probe
    from memcfg.registry import load
    from memcfg.solver.expr import PENDING

    registry = load()
    theory, took = lowered(list(registry.theory.options.values()), list(registry.theory.rules.values()))
    here = {key: value for key, value in probe(registry, {}).items() if value is not PENDING}
    asked = requests(theory, number, [{**here, **host} for host in HOSTS])
    return {"rules": len(theory.rules), "options": len(theory.options), "lower": round(took, 1)} | measured(
        theory, asked
    )


AXES = (
    "trainer.name", "packing.strategy", "padding_free.enabled", "attention.implementation", "loss.type", "loss.kernel",
    "checkpointing.mode", "offload.activations", "mlp.mode", "quantization.mode", "liger.enabled", "peft.method",
)  # fmt: skip


def grid(points: int = 1_800_000) -> dict[str, Any]:
    """All values of as many technique options as make at least `points` combinations, the option left out included."""
    from memcfg.registry import load

    theory = load().theory
    axes: dict[str, list[Any]] = {}
    size = 1
    for key in AXES:
        if key in theory.options and size < points:
            axes[key] = [UNSET, *theory.options[key].values]
            size *= len(axes[key])
    facts = {"device.type": "cuda", "device.capability": 90, "world.size": 1, "model.type": "qwen3", "moe.model": False,
             "vision.data": False, "liger.installed": True, "quantization.installed": True, "vllm.installed": True, "vllm.for_cpus": False,
             "distributed.deepspeed": True, "offload.rehearsal": False}  # fmt: skip
    facts = {key: value for key, value in facts.items() if key in theory.options}
    valid: list[int] = []
    took = milliseconds(lambda: valid.append(sum(1 for _ in valid_points(theory, Request(facts=facts), axes))))
    return {"points": size, "valid": valid[0], "ms": round(took), "axes": list(axes)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="200,1000,10000")
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--no-grid", action="store_true")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    found: dict[str, Any] = {}
    for size in (int(text) for text in given.sizes.split(",") if text):
        found[str(size)] = synthetic(size, given.requests if size <= 1000 else max(10, given.requests // 10))
        print(size, json.dumps(found[str(size)], indent=1), flush=True)
    found["installed"] = installed(given.requests)
    print("installed", json.dumps(found["installed"], indent=1), flush=True)
    if not given.no_grid:
        found["grid"] = grid()
        print("grid", json.dumps(found["grid"], indent=1), flush=True)
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
