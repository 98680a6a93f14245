"""That knowing a plugin costs little: importing its declaration loads nothing heavy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Final

HEAVY: Final = (
    "torch", "transformers", "datasets", "accelerate", "peft", "tokenizers", "safetensors", "numpy", "pandas", "pyarrow",
    "hydra", "scipy",
)  # fmt: skip
"""Packages that take a noticeable part of a second to import."""

_LOOK: Final = """
import json, sys, time
import memcfg
module, before, begin = sys.argv[1], set(sys.modules), time.perf_counter()
__import__(module)
ms = 1e3 * (time.perf_counter() - begin)
plugin = getattr(sys.modules[module], "plugin", None)
print(json.dumps([ms, sorted(set(sys.modules) - before), getattr(plugin, "hooks", None)]))
"""


@dataclass(frozen=True)
class Imported:
    """What importing a module brought: the heavy packages among it (with the plugin's hooks), and how long it took."""

    heavy: tuple[str, ...]
    ms: float


def assert_light_import(module: str) -> None:
    """Fail if importing this module, which holds the plugin's declaration, also imports torch, another heavy package or
    the plugin's own hooks. Tried in a Python of its own."""
    found = imported(module)
    if found.heavy:
        raise AssertionError(f"importing `{module}` also imports {', '.join(f'`{name}`' for name in found.heavy)}")


def imported(module: str) -> Imported:
    """Import the module in another process. Raises `AssertionError` where it cannot be imported."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    done = subprocess.run(
        [sys.executable, "-c", _LOOK, module], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise AssertionError(f"`{module}` cannot be imported: {done.stderr.strip().splitlines()[-1]}")
    ms, new, hooks = json.loads(done.stdout.splitlines()[-1])
    heavy = [package for package in HEAVY if package in new]
    return Imported((*heavy, *([hooks] if hooks in new and hooks != module else ())), ms)
