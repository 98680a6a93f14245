"""`memcfg why-not OPTION=VALUE [OVERRIDES]`: what stands in the way of a value, and what would come with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memcfg.commands.arguments import Arguments
from memcfg.commands.sources import option_key
from memcfg.errors import ConflictError, Problem, RequestError
from memcfg.report.console import Terminal

if TYPE_CHECKING:
    from memcfg.provenance import Change
    from memcfg.registry import Registry
    from memcfg.solver.request import Request

USAGE = "write `memcfg why-not OPTION=VALUE [OVERRIDES]`"


def main(arguments: Arguments, terminal: Terminal) -> int:
    """Print why, or that it is possible. Exit code 0 for both: the question is answered."""
    arguments.refuse_flags("json")
    return _why_not(arguments, terminal)


def _why_not(arguments: Arguments, terminal: Terminal) -> int:
    if not arguments.rest or "=" not in arguments.rest[0]:
        raise RequestError(Problem("`why-not` needs the option and the value", fix=USAGE))
    from memcfg.compose import compose
    from memcfg.compose.request import installed
    from memcfg.solver import why_not

    supposed, *words = arguments.rest
    registry = installed()
    request = compose(words, registry=registry, config_dir=arguments.config_dir)
    registry = registry.within(request)
    key, value, asked = supposition(supposed, words, request, registry, arguments.config_dir)
    override = supposed.lstrip("+")
    try:
        error = why_not(registry.theory, asked, key, value)
    except RequestError as fault:
        raise registry.explained(fault, {key: value}) from fault.__cause__
    changes = [] if error is not None else _changes(request, asked, registry, key, value)
    if arguments.has("json"):
        _as_json(terminal, override, error, changes)
    elif error is not None:
        from memcfg.report.provenance import show_impossible

        terminal.show(*show_impossible(override, error))
    else:
        from memcfg.report.provenance import show_possible

        terminal.show(*show_possible(override, changes))
    return 0


def supposition(
    said: str, words: list[str], request: Request, registry: Registry, config_dir: str | None
) -> tuple[str, Any, Request]:
    """The option and the value that are asked about, and the request without them. A group's choice is asked about by
    the first option that its file changes; what else it sets is taken as chosen."""
    from memcfg.compose import compose
    from memcfg.compose.normalise import parse
    from memcfg.compose.values import meaning
    from memcfg.solver.expr import UNSET, same

    override = parse(said)
    name = override.key_or_group
    if "." in name or "/" in name:
        key = option_key(name, registry)
        if (value := meaning(key, registry.options[key], override.value(), "command line")) is UNSET:
            raise RequestError(Problem("is no value", key=said, fix=USAGE))
        return key, value, request
    chosen = compose([*words, said], registry=registry, config_dir=config_dir)
    now = {key: choice.value for key, choice in request.choices.items()}
    changed = [k for k, c in chosen.choices.items() if not same(now.get(k, UNSET), c.value)]
    if not changed:
        raise RequestError(Problem("is what the request says already", key=said))
    return changed[0], chosen.choices[changed[0]].value, chosen


def _changes(request: Request, asked: Request, registry: Registry, key: str, value: Any) -> list[Change]:
    """What the value would change; nothing for a derived option, which nobody can choose."""
    from dataclasses import replace

    from memcfg.provenance import compare
    from memcfg.solver.request import Choice

    if registry.options[key].role not in ("choice", "setting"):
        return []
    with_it = replace(asked, choices={**asked.choices, key: Choice(value, "command line")})
    try:
        return compare(registry.plan(request), registry.plan(with_it))
    except ConflictError:  # the request has no plan yet: the value mends it
        return []


def _as_json(terminal: Terminal, override: str, error: ConflictError | None, changes: list[Change]) -> None:
    from memcfg.report import jsonform
    from memcfg.report.provenance import change_data

    found = {"conflicts": [], "repairs": []} if error is None else jsonform.failure(error)
    terminal.show(
        jsonform.text({
            "ok": True, "asked": override, "possible": error is None, "conflicts": found["conflicts"],
            "repairs": found["repairs"], "changes": [change_data(change) for change in changes],
        })
    )  # fmt: skip
