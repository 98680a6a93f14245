"""One cache folder for the whole session, so that tests neither read nor fill the user's own; what is expensive to make
(the standard library's rows) is made once, by whichever worker comes first."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session", autouse=True)
def session_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """`MEMCFG_CACHE` in the session's folder, which the workers of one session share."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    before = os.environ.get("MEMCFG_CACHE")
    os.environ["MEMCFG_CACHE"] = str(shared / "memcfg-cache")
    yield
    if before is None:
        del os.environ["MEMCFG_CACHE"]
    else:
        os.environ["MEMCFG_CACHE"] = before


@pytest.fixture(scope="session")
def warm_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """What to run in place of `sys.executable` where a program loads torch: the program is forked from one that has
    (see `tests/nursery.py`). The workers of a session share it."""
    with forking("torch", tmp_path_factory) as python:
        yield python


@pytest.fixture(scope="session")
def light_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The same for a program that loads no torch: forked from one that has loaded memcfg's command line and Hydra."""
    with forking("light", tmp_path_factory) as python:
        yield python


@pytest.fixture(scope="session")
def interpreting_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The same for a program that runs Triton's kernels without a GPU: Triton decides as it is loaded that it interprets."""
    with forking("interpreting", tmp_path_factory, TRITON_INTERPRET="1") as python:
        yield python


@contextlib.contextmanager
def forking(kind: str, tmp_path_factory: pytest.TempPathFactory, **environment: str) -> Iterator[str]:
    """A Python whose programs are forked from one that has loaded what `kind` says, which is kept while this holds."""
    base = tmp_path_factory.getbasetemp()
    folder = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    nursery, address = str(Path(__file__).with_name("nursery.py")), str(folder / f"nursery-{kind}")
    with (folder / f"{kind}.lock").open("w") as lock, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as lease:
        fcntl.flock(lock, fcntl.LOCK_EX)
        started = None
        try:
            lease.connect(address)
        except OSError:
            quiet = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "CUDA_VISIBLE_DEVICES": ""}
            started = subprocess.Popen(
                [sys.executable, nursery, "serve", address, kind], env=os.environ | quiet | environment, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            )  # fmt: skip
            assert started.stdout is not None
            assert started.stdout.readline() == "ready\n"
            lease.connect(address)
        socket.send_fds(lease, [b"lease"], [])
        fcntl.flock(lock, fcntl.LOCK_UN)
        python = folder / f"python-{kind}-{os.getpid()}"
        python.write_text(
            f'#!/bin/sh\nNURSERY_PYTHON="$0" exec "{sys.executable}" -I -S "{nursery}" ask "{address}" "$@"\n'
        )
        python.chmod(0o755)
        yield str(python)
    if started is not None:
        with contextlib.suppress(subprocess.TimeoutExpired):  # where another worker still needs it
            started.wait(timeout=5)


@pytest.fixture(scope="session")
def whole_page() -> Callable[[str], Any]:
    """`whole_page(html)`: the page parsed and held to what every page promises (see `tests/whole_page.py`)."""
    spec = importlib.util.spec_from_file_location("whole_page", Path(__file__).with_name("whole_page.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["whole_page"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module.WholePage
