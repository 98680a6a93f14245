"""The installed plugin that a name on the command line means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memcfg.compose.spelling import nearest
from memcfg.errors import Problem, RequestError

if TYPE_CHECKING:
    from memcfg.registry import Installed, Registry


def named(name: str, registry: Registry) -> Installed:
    """The plugin of this name, or the only one of the distribution of this name. Raises `RequestError`."""
    found = [plugin for plugin in registry.plugins if plugin.name == name]
    found = found or [plugin for plugin in registry.plugins if plugin.distribution == name.replace("_", "-")]
    if len(found) == 1:
        return found[0]
    if found and {plugin.name for plugin in found} != {name}:
        fix = "write the name of one of its plugins; `memcfg plugins` lists them"
        raise RequestError(Problem(f"a distribution of {len(found)} plugins", key=name, fix=fix))
    if found:
        both = " and ".join(f"`{plugin.distribution}`" for plugin in found)
        raise RequestError(Problem(f"{both} both bring a plugin of this name", key=name, fix="uninstall one of them"))
    names = [word for plugin in registry.plugins for word in (plugin.name, plugin.distribution)]
    near = nearest(name, dict.fromkeys(names))
    raise RequestError(
        Problem("no such plugin", key=name, nearest=near, fix="`memcfg plugins` lists what is installed")
    )
