"""`run.json` and `report.html` of a run: by which command it was started, where, and how it ended.

    run.json   command, started, python, platform, machine, versions;
               status (`running` until it ends: then `completed`, `failed` or `interrupted`), ended, error

A run that is killed leaves `running` behind. Values of secret options are masked in the command."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from itertools import count, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from memcfg.commands.ranks import TYPED, lost
from memcfg.errors import MemcfgError
from memcfg.files import write_atomic
from memcfg.planfile import MASKED, secrets
from memcfg.signals import unhurried

if TYPE_CHECKING:
    from memcfg.plan import Plan
    from memcfg.report.console import Terminal

JOURNAL_FILE: Final = "run.json"
PAGE_FILE: Final = "report.html"
TOLD: Final = ("torch", "transformers", "accelerate", "datasets", "peft", "tokenizers", "safetensors", "numpy", "pyarrow",
               "triton", "bitsandbytes", "liger-kernel", "deepspeed", "vllm", "hydra-core", "pluggy")  # fmt: skip
"""Packages whose versions are written down where they are installed."""


@contextmanager
def journal(plan: Plan, folder: Path, terminal: Terminal) -> Iterator[None]:
    """Keep `run.json` around a run, and make `report.html` once there is something to tell: for the only process or the first
    of several. A page that cannot be made is a warning: the run is what counts."""
    said, before, logged = begun(plan, sys.argv), _earlier(folder), _logged(folder)
    _write(folder, said)
    try:
        yield
    except BaseException as error:
        if before is not None and _logged(folder) == logged:  # a run that was to be gone on with, and was refused
            write_atomic(folder / JOURNAL_FILE, before)
        elif (folder / JOURNAL_FILE).exists():  # else the folder was cleared: it never became a run
            end(folder, said | failure(lost(error) or error), terminal)
        raise
    end(folder, said | {"status": "completed"}, terminal)


def begun(plan: Plan, argv: Sequence[str]) -> dict[str, Any]:
    """What is known before a run."""
    return {
        "status": "running",
        "command": json.loads(typed) if (typed := os.environ.get(TYPED)) else command(argv, secrets(plan)),
        "started": _now(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": machine(plan.device),
        "versions": versions(),
    }


def machine(device: str) -> dict[str, Any]:
    """What this host is made of. GPUs are named for runs that use them, as their driver calls them."""
    from memcfg.core import nvml

    found: dict[str, Any] = {"cpus": os.cpu_count()}
    with suppress(AttributeError, ValueError, OSError):  # not every platform tells
        found["memory_bytes"] = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if device == "cuda":
        cards = takewhile(lambda seen: seen is not None, (nvml.seen(number) for number in count()))
        found["gpus"] = [{"name": seen.name, "memory_bytes": seen.memory} for seen in cards if seen is not None]
    return found


def command(argv: Sequence[str], hidden: Mapping[str, str]) -> list[str]:
    """The words of the command line, the program's path shortened and secrets masked."""
    program, *words = argv or ["memcfg"]
    name = Path(program).name
    lead = ["python", "-m", "memcfg"] if name == "__main__.py" else [name]
    for secret in filter(None, hidden.values()):
        words = [word.replace(secret, MASKED) for word in words]
    return [*lead, *words]


def versions() -> dict[str, str]:
    """Of memcfg and of what it stands on; asked of the installation, nothing is imported."""
    from memcfg import __version__

    found = {"memcfg": __version__}
    for name in TOLD:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def failure(error: BaseException) -> dict[str, Any]:
    """What `run.json` says of a run that an error ended."""
    if isinstance(error, KeyboardInterrupt):
        return {"status": "interrupted"}
    if isinstance(error, MemcfgError):
        from memcfg.report.errors import error_text

        return {"status": "failed", "error": error_text(error)}
    return {"status": "failed", "error": f"{type(error).__name__}: {error}"}


def end(folder: Path, said: Mapping[str, Any], terminal: Terminal) -> None:
    """Write down how a run ended, and its page. A launcher that has lost patience waits until that is done."""
    with unhurried():
        try:
            _write(folder, {**said, "ended": _now()})
            write_page(folder)
        except Exception as error:
            terminal.say(f"warning: no `{PAGE_FILE}`: {error}")


def write_page(folder: Path) -> Path:
    """Make `report.html` in the folder of a run. Raises `RunError` where it cannot be written."""
    from memcfg.report.pages.run import page_of
    from memcfg.runfiles import read

    return write_atomic(folder / PAGE_FILE, page_of(read(folder)))


def _earlier(folder: Path) -> bytes | None:
    """What an earlier run in the folder wrote down."""
    return (folder / JOURNAL_FILE).read_bytes() if (folder / JOURNAL_FILE).is_file() else None


def _logged(folder: Path) -> int:
    """How much was logged, in bytes."""
    file = folder / "metrics.jsonl"
    return file.stat().st_size if file.is_file() else 0


def _write(folder: Path, said: Mapping[str, Any]) -> None:
    write_atomic(folder / JOURNAL_FILE, json.dumps(said, indent=2) + "\n")


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")
