"""`memcfg explain OPTION [OVERRIDES]`: how one value was decided, back to what was typed."""

from __future__ import annotations

from memcfg.commands.arguments import Arguments
from memcfg.commands.sources import option_key, plan_of
from memcfg.errors import Problem, RequestError
from memcfg.report.console import Terminal

USAGE = "write `memcfg explain OPTION [OVERRIDES]`, or a plan's file in place of the overrides"


def main(arguments: Arguments, terminal: Terminal) -> int:
    """Print the way back as a tree. Exit code 2 where there is no plan."""
    arguments.refuse_flags("json")
    return _explain(arguments, terminal)


def _explain(arguments: Arguments, terminal: Terminal) -> int:
    if not arguments.rest or not arguments.rest[0].strip() or "=" in arguments.rest[0]:
        raise RequestError(Problem("`explain` needs the option to explain", fix=USAGE))
    from memcfg.compose.request import installed
    from memcfg.provenance import trail
    from memcfg.report import jsonform
    from memcfg.report.provenance import show_trail, trail_data

    name, *words = arguments.rest
    registry = installed()
    key = option_key(name, registry)
    plan = plan_of(words, registry, arguments.config_dir)
    if key not in plan.decisions:
        raise RequestError(Problem("the plan was made without this option", key=key))
    step, rules = trail(plan, key), registry.theory.rules
    if arguments.has("json"):
        option = registry.options[key]
        about = {"ok": True, "option": key, "doc": option.doc, "values": list(option.values)}
        terminal.show(jsonform.text({**about, "trail": trail_data(step, rules)}))
    else:
        terminal.show(*show_trail(step, registry.options[key], rules, plan.assumed))
    return 0
