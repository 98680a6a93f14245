"""A Python that has loaded what is heavy: each program that is asked of it is a process of its own, forked from it, which
costs what it does and not the seconds of importing torch.

    python nursery.py serve SOCKET KIND     keeps the Python that is forked; KIND says what it has loaded (`LOADED`)
    python nursery.py ask SOCKET ARGUMENTS  stands for `python ARGUMENTS`: [-u] and `-m MODULE ...`, `-c CODE ...` or `FILE ...`

What asks has the program's files, folder, environment and exit code, and hands signals on; killed, it takes the program with
it. What `sys.executable` starts in a program is forked likewise. What differs: modules are imported already, and variables
that are read by a library as it is loaded are those of whoever began to serve."""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

LEASE = b"lease"
"""Sent by who wants the service to last: it ends with the last connection that sent this."""

LIGHT = (
    "memcfg.cli", "memcfg.compose.request", "memcfg.compose.modes", "memcfg.registry.registry", "memcfg.commands.resolve",
    "memcfg.commands.help", "memcfg.commands.hydra", "memcfg.commands.plugins.listing", "memcfg.commands.sweep",
    "memcfg.report.plan", "memcfg.report.errors", "memcfg.report.plugins", "memcfg.planfile", "rich.console", "rich.table",
    "hydra._internal.core_plugins.basic_launcher", "hydra._internal.core_plugins.basic_sweeper",
    "hydra._internal.core_plugins.file_config_source", "hydra._internal.core_plugins.importlib_resources_config_source",
    "hydra._internal.core_plugins.structured_config_source", "memcfg.core.facts",
)  # fmt: skip
LOADED = {
    "light": LIGHT,
    "torch": (
        "torch", "torch.distributed", "datasets", "accelerate", "transformers.trainer", "transformers.models.llama.modeling_llama",
        "peft", "deepspeed", *LIGHT, "memcfg.commands.train", "memcfg.engine.execute", "memcfg.engine.trainer",
    ),
    "interpreting": (
        "torch", "triton", "transformers.models.llama.modeling_llama", "liger_kernel.ops.fused_linear_cross_entropy",
        "memcfg_loss.chunked", "memcfg.engine.forward",
    ),
}  # fmt: skip
"""What a kind of Python imports before it is forked, as far as it does nothing but define."""


# ------------------------------------------------------------------------------------------------ the Python that is forked


def serve(path: str, kind: str) -> None:
    """Fork until nobody holds a lease; never returns. Says `ready` once it listens."""
    said = os.dup(1)
    os.dup2(2, 1)  # where some of what is loaded speaks
    for name in (*LOADED[kind], *(plugins() if kind == "light" else ())):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a collection in a program would copy the pages of everything that is shared
    assert len(threads()) == 1, f"{threads()}: what has several threads cannot be forked"
    sys.stdout.flush()
    signal.signal(signal.SIGCHLD, reap)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path)
    listener.listen()
    os.write(said, b"ready\n")
    os.close(said)
    leases: list[socket.socket] = []
    while True:
        ready, _, _ = select.select([listener, *leases], [], [])
        if listener in ready:
            asked, _ = listener.accept()
            text, files, _, _ = socket.recv_fds(asked, 1 << 20, 3)
            if text == LEASE:
                leases.append(asked)
            elif os.fork() == 0:
                for other in (listener, *leases):
                    other.close()
                attend(asked, json.loads(text), files)
            else:
                asked.close()
                for file in files:
                    os.close(file)
        leases = [lease for lease in leases if lease not in ready]
        if not leases and listener not in ready:
            os.unlink(path)
            os._exit(0)


def plugins() -> list[str]:
    """The modules that declare memcfg's own plugins, and those that ask for their facts."""
    from importlib.metadata import entry_points

    own = [entry.module for entry in entry_points(group="memcfg") if entry.dist and entry.dist.name == "memcfg"]
    return [*own, *(f"{module}.facts" for module in own)]


def threads() -> list[str]:
    """The threads of this process, but for Arrow's allocator's, which knows of forks."""
    names = [Path(f"/proc/self/task/{task}/comm").read_text().strip() for task in os.listdir("/proc/self/task")]
    return [name for name in names if name != "jemalloc_bg_thd"]


def reap(*_: Any) -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def attend(asked: socket.socket, words: dict[str, Any], files: list[int]) -> None:
    """Fork the program, and see to it until it ends, or who asked is gone. Never returns."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    program = os.fork()
    if program == 0:
        asked.close()
        become(words, files)
    for file in files:
        os.close(file)
    asked.sendall(b"%d\n" % program)
    watched = os.pidfd_open(program)
    ready, _, _ = select.select([watched, asked], [], [])
    if watched not in ready:
        os.kill(program, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
    with contextlib.suppress(OSError):
        asked.sendall(b"%d\n" % code)
    os._exit(0)


def become(words: dict[str, Any], files: list[int]) -> None:
    """Be the program. Never returns."""
    for place, file in enumerate(files):
        os.dup2(file, place)
        os.close(file)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(words["environment"])
    os.chdir(words["folder"])
    sys.path[1:1] = [
        path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path not in sys.path
    ]
    sys.executable = words["python"]
    code = 1
    try:
        run(words["arguments"])
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
    with contextlib.suppress(Exception):
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code)


def run(arguments: list[str]) -> None:
    """As Python would begin with these arguments."""
    import runpy

    kind, *rest = arguments[1:] if arguments[0] == "-u" else arguments
    if kind == "-m":
        sys.argv, sys.path[0] = rest, os.getcwd()
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv, sys.path[0] = ["-c", *rest[1:]], ""
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv, sys.path[0] = [kind, *rest], os.path.dirname(os.path.abspath(kind))
        runpy.run_path(kind, run_name="__main__")


# ------------------------------------------------------------------------------------------------ who asks


def ask(path: str, arguments: list[str]) -> None:
    """Stand for a program: end as it ends."""
    signals = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    python, environment = os.environ.pop("NURSERY_PYTHON"), dict(os.environ)
    words = {"arguments": arguments, "folder": os.getcwd(), "environment": environment, "python": python}
    asked = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    asked.connect(path)
    socket.send_fds(asked, [json.dumps(words).encode()], [0, 1, 2])
    answers = asked.makefile()
    program = int(answers.readline())
    for number in signals:
        signal.signal(number, lambda number, _: os.kill(program, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    for file in (0, 1, 2):  # whoever reads them waits for the program alone
        os.close(file)
    code = int(answers.readline())
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    {"serve": lambda path: serve(path, sys.argv[3]), "ask": lambda path: ask(path, sys.argv[3:])}[sys.argv[1]](
        sys.argv[2]
    )
