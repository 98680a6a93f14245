"""`memcfg calibrate`: measure this host's GPU, so that predictions use its numbers instead of its card's usual ones."""

from __future__ import annotations

import json

from memcfg.commands.arguments import Arguments
from memcfg.errors import Problem, RequestError
from memcfg.report.console import Terminal


def main(arguments: Arguments, terminal: Terminal) -> int:
    """Measure, store, and say what was found. Takes a minute."""
    arguments.refuse_flags("json")
    if arguments.rest:
        raise RequestError(Problem("`calibrate` takes no override", key=arguments.rest[0]))
    from memcfg.core.facts import device_capability
    from memcfg.files import write_atomic
    from memcfg.planner.calibrate import calibrated
    from memcfg.planner.hosts import calibration_file, here
    from memcfg.report.memory import show_machine

    found = calibrated(here(device_capability({})), lambda text: terminal.say(f"measuring {text} ..."))
    path = calibration_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, json.dumps(found.to_dict(), indent=2) + "\n")
    if arguments.has("json"):
        terminal.show(json.dumps(found.to_dict(), indent=2))
    else:
        terminal.show(*show_machine(found), "", f"kept in {path}")
    return 0
