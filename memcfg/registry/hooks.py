"""The façade through which the engine calls hooks. Nothing else touches pluggy's manager.

Only the plugins that the plan makes active are imported. Each hook is a method without the `memcfg_` prefix that takes
the specification's parameters by keyword:

    hooks = registry.hooks(plan)
    model = hooks.load_model(plan=plan, device="cpu")
    dataset = hooks.prepare_dataset(plan=plan, dataset=rows, tokenizer=tokenizer, ledger=ledger, split="train")
"""

from __future__ import annotations

import importlib
import inspect
import time
from collections.abc import Callable, Sequence
from functools import partial
from types import FunctionType, ModuleType
from typing import Any, Final, NamedTuple

import pluggy

from memcfg.errors import PluginError
from memcfg.plan import Plan
from memcfg.registry import hookspecs
from memcfg.registry._markers import PROJECT, Slot
from memcfg.registry.installed import Installed, described, own_trace
from memcfg.registry.order import Link, ordered
from memcfg.solver.expr import UNSET, show

PREFIX: Final = "memcfg_"
SPECS: Final[dict[str, FunctionType]] = {n: f for n, f in vars(hookspecs).items() if n.startswith(PREFIX)}


def _slot(spec: FunctionType) -> Slot:
    slot: Slot = spec.memcfg_slot  # type: ignore[attr-defined]
    return slot


SELECTORS: Final = frozenset(selector for spec in SPECS.values() if (selector := _slot(spec).selector))
"""The options whose value picks the plugin that an exclusive hook is called on."""


class Call(NamedTuple):
    """One hook call that was made: the hook, the plugin that answered, and how long it took."""

    hook: str
    plugin: str
    ms: float


class Hooks:
    """The hooks of one plan. `calls` lists the calls made so far."""

    def __init__(self, plan: Plan, plugins: Sequence[Installed]) -> None:
        """`plugins` are the active ones, sorted. Raises `PluginError` if one cannot be imported, implements a hook that
        does not exist, or if a chain has no order."""
        self.plan = plan
        self.calls: list[Call] = []
        self._plugins = {p.name: p for p in plugins}
        self._manager = pluggy.PluginManager(PROJECT)
        self._manager.add_hookspecs(hookspecs)
        for plugin in plugins:
            if plugin.plugin is not None and plugin.plugin.hooks is not None:
                self._register(plugin, plugin.plugin.hooks)
        self._chains = {name: self._chain_order(name) for name, spec in SPECS.items() if _slot(spec).feeds}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """The hook `memcfg_<name>` as a function of keyword arguments; `plan` may be left out."""
        spec = SPECS.get(PREFIX + name)
        if spec is None:
            raise AttributeError(f"there is no hook `{PREFIX}{name}`")
        return partial(self._exclusive if _slot(spec).selector else self._chain, spec)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(name.removeprefix(PREFIX) for name in SPECS)]

    def implementers(self, hook: str) -> tuple[str, ...]:
        """The active plugins that implement a hook (named without the prefix), a chain's in the order of its calls."""
        name = PREFIX + hook
        return self._chains[name] if name in self._chains else self._implementers(name)

    def require(self, *hooks: str) -> None:
        """Raise the `PluginError` that calling one of these exclusive hooks would, before anything is done."""
        for hook in hooks:
            self._implementer(SPECS[PREFIX + hook])

    def _register(self, plugin: Installed, module_name: str) -> None:
        module = _imported(plugin, module_name)
        _refuse_unknown_hooks(plugin, module)
        try:
            self._manager.register(module, name=plugin.name)
        except pluggy.PluginValidationError as error:
            text = " ".join(str(error).split())
            raise PluginError(f"its hooks do not fit: {text}", plugin.name, plugin.distribution) from None

    def _implementers(self, hook: str) -> tuple[str, ...]:
        having = {impl.plugin_name for impl in getattr(self._manager.hook, hook).get_hookimpls()}
        return tuple(name for name in self._plugins if name in having)

    def _chain_order(self, hook: str) -> tuple[str, ...]:
        links = []
        for name in self._implementers(hook):
            consumes, produces = getattr(self._manager.get_plugin(name), hook).memcfg_order
            links.append(Link(name, frozenset(consumes), frozenset(produces)))
        return tuple(link.plugin for link in ordered(hook, links))

    def _exclusive(self, spec: FunctionType, /, **arguments: Any) -> Any:
        return self._call(spec, self._implementer(spec), self._bound(spec, arguments))

    def _chain(self, spec: FunctionType, /, **arguments: Any) -> Any:
        bound, feeds = self._bound(spec, arguments), _slot(spec).feeds or ""
        for plugin in self._chains[spec.__name__]:
            bound[feeds] = self._call(spec, plugin, bound)
            if bound[feeds] is None:
                raise self._error(
                    plugin, f"`{spec.__name__}` returned nothing: it must return `{feeds}`, changed or not"
                )
        return bound[feeds]

    def _bound(self, spec: FunctionType, arguments: dict[str, Any]) -> dict[str, Any]:
        """Every parameter of the specification, checked as Python would."""
        arguments.setdefault("plan", self.plan)
        return dict(inspect.signature(spec).bind(**arguments).arguments)

    def _implementer(self, spec: FunctionType) -> str:
        """The one plugin that implements the value of the hook's selector."""
        selector = _slot(spec).selector or ""
        value = self.plan.get(selector, UNSET)
        choice = f"`{selector}={show(value)}`"
        name = self.plan.providers.get(selector)
        if value is UNSET or name is None:
            unset = f"nothing sets `{selector}`, so no plugin answers `{spec.__name__}`"
            raise PluginError(
                unset if value is UNSET else f"no installed plugin implements {choice} (`{spec.__name__}`)",
                plugin=name or selector,
            )
        if name not in self._implementers(spec.__name__):
            raise self._error(name, f"{choice} is provided by plugin `{name}`, which implements no `{spec.__name__}`")
        return name

    def _call(self, spec: FunctionType, plugin: str, arguments: dict[str, Any]) -> Any:
        """Call one plugin's implementation through a caller from which all others are removed."""
        others = [module for name, module in self._manager.list_name_plugin() if name != plugin]
        caller = self._manager.subset_hook_caller(spec.__name__, remove_plugins=others)
        begin = time.perf_counter()
        try:
            results = caller(**arguments)
        except Exception as error:
            error.add_note(f"raised in `{spec.__name__}` of {described(self._plugins[plugin])}")
            raise
        self.calls.append(Call(spec.__name__, plugin, 1e3 * (time.perf_counter() - begin)))
        return results[0] if results else None  # pluggy leaves out None

    def _error(self, plugin: str, text: str) -> PluginError:
        return PluginError(text, plugin, self._plugins[plugin].distribution if plugin in self._plugins else None)


def _imported(plugin: Installed, module_name: str) -> ModuleType:
    try:
        return importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        text = f"its hooks `{module_name}` cannot be imported: {type(error).__name__}: {error}"
        raise PluginError(text, plugin.name, plugin.distribution, own_trace(error)) from error


def _refuse_unknown_hooks(plugin: Installed, module: ModuleType) -> None:
    """A misspelt hook would never be called: pluggy only notices when asked, and not which plugin's it is."""
    import difflib

    for name, value in vars(module).items():
        if hasattr(value, "memcfg_impl") and inspect.isroutine(value) and name not in SPECS:
            near = difflib.get_close_matches(name, SPECS, n=1)
            hint = f"; did you mean `{near[0]}`?" if near else ""
            raise PluginError(f"there is no hook `{name}`{hint}", plugin.name, plugin.distribution)
