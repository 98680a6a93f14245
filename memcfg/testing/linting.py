"""That `memcfg lint` finds nothing in a plugin."""

from __future__ import annotations

from memcfg.registry.lint import lint_installed
from memcfg.registry.plugin import Plugin
from memcfg.solver.lint import Finding
from memcfg.testing.subject import with_it, without_it


def assert_lint_clean(plugin: Plugin | str) -> None:
    """Fail with what `memcfg lint` finds because of this plugin and the plugin does not allow with a reason."""
    faults = findings(plugin)
    if faults:
        raise AssertionError("\n".join(f"{finding.name}: {finding.text}" for finding in faults))


def findings(plugin: Plugin | str) -> list[Finding]:
    """What lint finds with the plugin and not without it."""
    found = lint_installed(with_it(plugin)).found
    known = {finding.name for finding in lint_installed(without_it()).found} if found else set()
    return [finding for finding in found if finding.name not in known]
