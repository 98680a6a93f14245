"""What is installed, as one object: options with their full menus, the rule base, who implements what.

`load()` makes it; `Registry.plan(request)` resolves a request; `Registry.hooks(plan)` gives the engine its hooks.
"""

from __future__ import annotations

import importlib
import inspect
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from memcfg.errors import MemcfgError, Note, PluginError, Problem, RequestError, RunError
from memcfg.plan import Plan
from memcfg.registry.absent import explained
from memcfg.registry.assemble import Assembly, assemble
from memcfg.registry.claims import implemented
from memcfg.registry.hooks import SELECTORS, Hooks
from memcfg.registry.installed import Installed, failure
from memcfg.registry.loader import environment, flag, installed
from memcfg.registry.narrow import Lists, lists, narrowed
from memcfg.registry.plugin import Axis, Plugin
from memcfg.solver.expr import UNSET, Option, holds
from memcfg.solver.request import Request
from memcfg.solver.resolve import resolve
from memcfg.solver.theory import Theory

Discover = bool | tuple[str, ...]
NO_LISTS = Lists()


def load(
    *, discover: bool | Collection[str] = True, extra: Sequence[Plugin] = (), strict: bool | None = None
) -> Registry:
    """The registry of the installed plugins and of those handed in. `discover=False` leaves all but core out; names of
    plugins or of distributions ("memcfg" is its own) all but those.

    `strict=True` raises the first error of any plugin as a `PluginError`; `False` none but core's, so that a broken
    installation can still be looked at; `None` raises errors of memcfg's own plugins and records those of third parties,
    unless `MEMCFG_STRICT_PLUGINS=1`. What is installed is looked up once a process."""
    if strict is None and flag("MEMCFG_STRICT_PLUGINS"):
        strict = True
    if not isinstance(discover, bool):
        discover = tuple(sorted(discover))
    if extra:
        return _load(discover, tuple(extra), strict)
    return _remembered(discover, strict, environment())


@cache
def _remembered(discover: Discover, strict: bool | None, environment: tuple[str | None, ...]) -> Registry:
    """A command may look at what is installed, whatever its state, and then use it: where nothing is broken, that is one
    and the same registry."""
    if strict is not False:
        registry = _remembered(discover, False, environment)
        if not registry.broken:
            return registry
    return _load(discover, (), strict)


def _load(discover: Discover, extra: Sequence[Plugin], strict: bool | None) -> Registry:
    plugins = installed(extra, discover)
    _raise_broken(plugins, strict)
    assembly = assemble(plugins, tolerant=strict is False)
    _raise_broken(assembly.plugins, strict)
    return Registry(assembly, plugins)


def _raise_broken(plugins: Sequence[Installed], strict: bool | None) -> None:
    for plugin in plugins:
        if plugin.status == "broken" and (strict or (strict is None and plugin.first_party)):
            raise failure(plugin)


class Registry:
    """The installed plugins and what they make together. Immutable; make it with `load`."""

    def __init__(self, assembly: Assembly, found: Sequence[Installed], lists: Lists = NO_LISTS) -> None:
        """`found`: the plugins before they were judged together. `lists`: what a request left of them."""
        self._found, self._lists = tuple(found), lists
        self._narrower: dict[Lists, Registry] = {}
        self.plugins: tuple[Installed, ...] = assembly.plugins
        self.theory: Theory = assembly.theory
        self._implements = assembly.implements
        self._good = {p.name: p for p in assembly.plugins if p.status == "ok"}

    @property
    def broken(self) -> tuple[Installed, ...]:
        """The plugins that could not be used, each with its error."""
        return tuple(p for p in self.plugins if p.status == "broken")

    @property
    def options(self) -> Mapping[str, Option]:
        """Every option by key, menus extended by what plugins provide."""
        return self.theory.options

    @property
    def owners(self) -> dict[str, str]:
        """The plugin that declares each option."""
        return {option.key: name for name, plugin in self._declared() for option in plugin.options}

    def providers(self, values: Mapping[str, Any]) -> dict[str, str]:
        """For each option with implementers: the plugin that implements its value; absent where nobody does."""
        found = {key: table.get(values.get(key, UNSET)) for key, table in self._implements.items()}
        return {key: plugin for key, plugin in found.items() if plugin is not None}

    def active(self, values: Mapping[str, Any]) -> tuple[str, ...]:
        """The plugins that these values make active, in loading order."""
        chosen = {plugin for key, plugin in self.providers(values).items() if key in SELECTORS}
        return tuple(name for name, plugin in self._declared() if name in chosen or _wanted(plugin, values))

    def conf_paths(self) -> list[str]:
        """Hydra search paths of the plugins that bring their own config groups."""
        return [plugin.conf for _, plugin in self._declared() if plugin.conf is not None]

    def groups(self) -> dict[str, str]:
        """The config groups that plugins answer for, each with its doc line: memcfg's own, if a third party adds one."""
        own = {name for name, plugin in self._good.items() if plugin.first_party}
        found: dict[str, str] = {}
        for _, plugin in sorted(self._declared(), key=lambda item: item[0] not in own):
            found = {**plugin.groups, **found}
        return found

    def commands(self) -> dict[str, str]:
        """Sub-commands that plugins add: `{name: "module:function"}`."""
        return {command: target for _, plugin in self._declared() for command, target in plugin.commands.items()}

    def axes(self) -> tuple[Axis, ...]:
        """What the planner may vary, plugin by plugin in loading order."""
        return tuple(axis for _, plugin in self._declared() for axis in plugin.axes)

    def within(self, request: Request) -> Registry:
        """The registry without the plugins that the request switches off (`plugins.only`, `plugins.off`): mostly itself."""
        said = lists(request)
        if said == self._lists or not (said.only or said.off):
            return self
        if said not in self._narrower:
            left = narrowed(self._found, said)
            self._narrower[said] = Registry(assemble(left), self._found, said)
        return self._narrower[said]

    def plan(self, request: Request) -> Plan:
        """Resolve a request. Raises `RequestError`, `ConflictError`, or `PluginError` if what it asks for belongs to a
        plugin that could not be loaded, or that the request itself switches off."""
        left = self.within(request)
        if left is not self:
            return left.plan(replace(request, facts={k: v for k, v in request.facts.items() if k in left.options}))
        try:
            resolution = resolve(self.theory, request)
        except RequestError as error:
            raise self.explained(error, {k: c.value for k, c in request.choices.items()}) from error.__cause__
        values = {key: decision.value for key, decision in resolution.decisions.items()}
        active = self.active(values)
        notes = dict.fromkeys((*request.notes, *resolution.notes, *self._not_yet(values)))
        return Plan(
            decisions=resolution.decisions,
            active=active,
            providers=self.providers(values),
            notes=tuple(notes),
            pending=resolution.pending,
            assumed=request.assumed,
            fact_reads=resolution.fact_reads,
            versions={p.distribution: p.version for p in map(self._good.__getitem__, active) if p.version},
        )

    def explained(self, error: RequestError, values: Mapping[str, Any] | None = None) -> RequestError | PluginError:
        """The same error, saying which broken or blocked plugin may be why a key, group or value is not known.

        `values` are the requested values by key, as far as known. For whoever validates a request before the solver."""
        return explained(error, self.plugins, self.options, values or {})

    def hooks(self, plan: Plan) -> Hooks:
        """The hooks of a plan; imports its active plugins.

        Raises `PluginError` if one is not (or no longer) usable, and `RunError` if one cannot do yet what is planned."""
        missing = self._not_yet(plan)
        if missing:
            raise RunError(*(Problem(note.text) for note in missing))
        return Hooks(plan, [self._usable(name) for name in plan.active])

    def preflight(self, plan: Plan, tell: Callable[[str], None] = lambda text: None) -> None:
        """Let the plan's active plugins look at what a run would need, before anything heavy is imported. `tell` is given to
        those that take it, for what a user should hear meanwhile: that something is waited for.

        Raises what they raise, and `PluginError` for one that fails."""
        for name in plan.active:
            plugin = self._usable(name)
            if plugin.plugin is None or plugin.plugin.preflight is None:
                continue
            module, _, function = plugin.plugin.preflight.partition(":")
            try:
                look = getattr(importlib.import_module(module), function)
                look(plan, **({"tell": tell} if "tell" in inspect.signature(look).parameters else {}))
            except MemcfgError:
                raise
            except Exception as error:
                text = f"its preflight `{plugin.plugin.preflight}` failed: {type(error).__name__}: {error}"
                raise PluginError(text, name, plugin.distribution, traceback.format_exc()) from error

    def _not_yet(self, values: Mapping[str, Any]) -> list[Note]:
        """What plugins say that they cannot do yet with these values."""
        return [
            Note("warning", f"{name}.not_yet", f"`{item.when}` can be planned but not run yet: {item.because}")
            for name, plugin in self._declared()
            for item in plugin.not_yet
            if holds(item.when, values)
        ]

    def _usable(self, name: str) -> Installed:
        if name in self._good:
            return self._good[name]
        for plugin in self.plugins:
            if plugin.name == name:
                text = f"the plan needs this plugin, which could not be loaded: {plugin.error}"
                raise PluginError(text, name, plugin.distribution, plugin.trace)
        raise PluginError("the plan needs this plugin, which is not installed", name)

    def _declared(self) -> list[tuple[str, Plugin]]:
        return [(name, p.plugin) for name, p in self._good.items() if p.plugin is not None]


def _wanted(plugin: Plugin, values: Mapping[str, Any]) -> bool:
    """Whether a plugin is active beyond answering a hook that the values select."""
    return not SELECTORS & implemented(plugin).keys() if plugin.active is None else holds(plugin.active, values)
