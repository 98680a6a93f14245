"""The program `memcfg`, also `python -m memcfg`.

Exit codes: 0 done, 1 the run could not go on, 2 the request could not be resolved, 130 interrupted, 141 the reader of
the output went away, 143 terminated (SIGTERM is handled as an interrupt is: what was measured so far is kept). Errors that memcfg explains are printed without a traceback; `MEMCFG_DEBUG=1` shows it.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import takewhile
from typing import Final

from memcfg.commands import COMMANDS
from memcfg.commands.arguments import Arguments, read
from memcfg.commands.launch import Told
from memcfg.commands.ranks import launched, lost, may_speak, rank
from memcfg.compose.spelling import nearest
from memcfg.errors import MemcfgError, Problem, RequestError, RunError
from memcfg.report.console import Terminal, Unwritable, results_alone
from memcfg.signals import heed

INTERRUPTED: Final = 130
NO_READER: Final = 141
TERMINATED: Final = 143

RAW: Final = ("completion",)
"""Commands of memcfg's own that read what follows them themselves."""


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived. Whoever tidies up after an interrupt does so after this too."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; returns its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    terminal = Terminal(mute=rank() > 0, json="--json" in words)
    _heed_sigterm()
    begin = time.perf_counter()
    try:
        code = _run(words, terminal)
        sys.stdout.flush()
        terminal.detail(f"took {time.perf_counter() - begin:.2f} s")
        return code
    except Told as error:
        return error.exit_code
    except MemcfgError as error:
        _debug()
        if may_speak(error):
            _tell(error, terminal)
        return error.exit_code
    except KeyboardInterrupt as stop:
        _debug()
        if (gone := lost(stop)) is not None and may_speak(gone):
            _tell(gone, terminal)
        elif not launched():  # else the launcher says it, once
            terminal.fail("terminated" if isinstance(stop, Terminated) else "interrupted")
        return TERMINATED if isinstance(stop, Terminated) else INTERRUPTED
    except BrokenPipeError:
        _close_stdout()
        return NO_READER
    except Exception as error:
        _debug()
        from memcfg.report.errors import unexpected_text

        if may_speak(error):
            text = unexpected_text(error)
            _tell(RunError(text.removeprefix("error: ")), terminal) if terminal.json else terminal.fail(text)
        return int(getattr(error, "exit_code", 1))


def _tell(error: MemcfgError, terminal: Terminal) -> None:
    """Say an error: on stderr, or where objects are asked for as one of them."""
    if terminal.json and not isinstance(error, Unwritable):
        from memcfg.report import jsonform

        terminal.show(jsonform.text(jsonform.failure(error)))
    else:
        from memcfg.report.errors import error_text

        terminal.fail(error_text(error))


def _run(words: list[str], terminal: Terminal) -> int:
    if (
        "--local" in words and words[0] not in RAW
    ):  # said before the words are read: which commands there are depends on the plugins
        os.environ["MEMCFG_LOCAL"] = "1"
    arguments = read(words, raw=_raw_commands(words))
    terminal.quiet, terminal.verbose = arguments.has("quiet"), arguments.has("verbose")
    _hush_libraries(terminal.verbose)
    terminal.color = terminal.color and not arguments.has("no_color")
    if arguments.has("version"):
        return _version(terminal)
    before = takewhile(lambda word: word != "--", arguments.rest)  # of a command that reads its words itself
    if arguments.has("help") or any(word in ("--help", "-h") for word in before):
        return _help(arguments, terminal)
    return _dispatch(arguments, terminal)


def _dispatch(arguments: Arguments, terminal: Terminal) -> int:
    """Hand over to the module that answers."""
    from memcfg.commands.hydra import FLAGS

    name = arguments.name
    if any(arguments.has(flag) for flag in FLAGS):
        return _command("hydra", arguments, terminal)
    if name in COMMANDS:
        return _command("sweep" if name == "train" and _sweeps(arguments) else name, arguments, terminal)
    return _plugin_command(name, arguments)


def _sweeps(arguments: Arguments) -> bool:
    return arguments.has("multirun") or "hydra.mode=MULTIRUN" in arguments.rest


def _command(module: str, arguments: Arguments, terminal: Terminal) -> int:
    main = importlib.import_module(f"memcfg.commands.{module.replace('-', '_')}").main
    with results_alone() if terminal.json else nullcontext():
        return int(main(arguments, terminal))


def _raw_commands(words: Sequence[str]) -> tuple[str, ...]:
    """Commands of plugins, which read what follows them themselves; looked up only where some unknown word leads."""
    from memcfg.commands.arguments import SWITCHES

    first = next((word for word in words if word not in SWITCHES), "")
    if first in RAW:
        return (first,)
    if not first or "=" in first or first in COMMANDS or not first[0].isalpha():
        return ()
    from memcfg.registry import load

    return tuple(load(strict=False).commands())


def _plugin_command(name: str, arguments: Arguments) -> int:
    """Run a plugin's command. Raises `RequestError` where there is none of that name."""
    from memcfg.registry import load

    commands = load(strict=False).commands()
    if name not in commands:
        raise RequestError(_no_command(name, tuple(commands)))
    module, _, function = commands[name].partition(":")
    from memcfg.commands.train import calm_openmp
    from memcfg.core.facts import device_type

    calm_openmp(device_type({}))
    return int(getattr(importlib.import_module(module), function)(arguments.rest) or 0)


def _no_command(name: str, more: tuple[str, ...]) -> Problem:
    known = (*COMMANDS, *more)
    fix = f"commands are {', '.join(f'`{command}`' for command in known)}; an override is written `{name}=...`"
    return Problem("no such command", key=name, nearest=nearest(name, known), fix=fix)


def _version(terminal: Terminal) -> int:
    from memcfg import __version__

    if terminal.json:
        from memcfg.report import jsonform

        terminal.show(jsonform.text({"ok": True, "version": __version__}))
    else:
        terminal.show(f"memcfg {__version__}")
    return 0


def _help(arguments: Arguments, terminal: Terminal) -> int:
    from memcfg.commands.help import FLAGS, as_json, page
    from memcfg.registry import load

    registry = load(strict=False)
    if arguments.command is not None and (arguments.command in COMMANDS or arguments.command in registry.commands()):
        from memcfg.commands.command_help import page as command_page

        return _say(command_page(arguments.command, registry.commands(), FLAGS), terminal)
    if terminal.json:
        from memcfg.report import jsonform

        terminal.show(jsonform.text(as_json(registry, arguments.config_dir)))
    else:
        terminal.show(page(registry, arguments.config_dir))
    return 0


def _say(text: str, terminal: Terminal) -> int:
    from memcfg.report import jsonform

    terminal.show(jsonform.text({"ok": True, "help": text}) if terminal.json else text)
    return 0


def _hush_libraries(verbose: bool) -> None:
    """Let libraries speak only of what is wrong, or with `--verbose` of what they do. What the user set stands."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "info" if verbose else "warning")
    if verbose:
        import logging

        logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(name)s: %(message)s")


def _heed_sigterm() -> None:
    """Turn SIGTERM into an exception. Only the main thread may; elsewhere it is left as it is."""

    def stop(number: int, frame: object) -> None:
        raise Terminated

    if threading.current_thread() is threading.main_thread():
        heed(signal.SIGTERM, stop)


def _debug() -> None:
    if os.environ.get("MEMCFG_DEBUG") == "1":
        traceback.print_exc()


def _close_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's last flush does not complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
