"""A server is looked for before anything is loaded: what is said of one that is away, is another program, comes up late, or was
started without what the run needs. Each server here is a process of its own."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from memcfg_vllm import probe
from memcfg_vllm.contract import CHECKED

import memcfg
from memcfg import RunError

STANDIN = Path(__file__).parent / "standin_server.py"
START = "VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --logprobs-mode processed_logprobs"
ELSEWHERE = f"  say where it is: vllm.server_url=URL; or start one: {START}"


@contextmanager
def process(*command: str) -> Iterator[subprocess.Popen[str]]:
    started = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield started
    finally:
        started.kill()
        started.wait()


@contextmanager
def standin(*options: str) -> Iterator[str]:
    """The address of a server that is up."""
    with process(str(STANDIN), *options) as started:
        assert started.stdout is not None
        yield f"http://127.0.0.1:{int(started.stdout.readline())}"


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def request(url: str, *more: str) -> list[str]:
    return [
        "trainer=grpo", "generation=vllm", "vllm.mode=server", "vllm.transfer=files", f"vllm.server_url={url}",
        "vllm.server_timeout=20", *more,
    ]  # fmt: skip


def looked(url: str, *more: str) -> list[str]:
    """What a user is told by a look that finds nothing wrong."""
    told: list[str] = []
    probe.look(memcfg.resolve(request(url, *more)), told.append)
    return told


def test_a_server_that_is_away_ends_a_run_before_anything_is_loaded(light_python: str, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    overrides = request(url, "vllm.server_timeout=0.2", f"run.dir={tmp_path / 'run'}")
    code = (
        "import sys\nfrom memcfg.cli import main\n"
        "try:\n    code = main(sys.argv[1:])\nexcept SystemExit as stop:\n    code = stop.code\n"
        "print('torch' in sys.modules)\nsys.exit(code)"
    )
    ended = subprocess.run([light_python, "-c", code, *overrides], capture_output=True, text=True, check=False)
    assert " ".join(ended.stderr.split()) == (
        f"waiting up to 0.2 s for a vLLM server at `{url}`: connection refused "
        f"error: `vllm.server_url`: no vLLM server answers at `{url}` (waited 0.2 s): connection refused "
        f"start one: {START}; or say where it is: vllm.server_url=URL; or wait longer: vllm.server_timeout=SECONDS"
    )
    assert ended.stdout.splitlines()[-1] == "False", "torch was not loaded"
    assert ended.returncode == 1
    assert list(tmp_path.iterdir()) == []


def test_one_that_is_up_is_named_with_its_release() -> None:
    with standin() as url:
        assert looked(url) == [f"vLLM 0.32.0 serves `policy` at `{url}`"]


def test_one_that_comes_up_late_is_waited_for() -> None:
    port, told, started = free_port(), [], []
    plan = memcfg.resolve(request(f"http://127.0.0.1:{port}", "vllm.server_timeout=60"))

    def tell(text: str) -> None:
        told.append(text)
        if not started:  # only once it is waited for
            started.append(subprocess.Popen([sys.executable, str(STANDIN), "--port", str(port)]))

    try:
        probe.look(plan, tell)
    finally:
        for each in started:
            each.kill()
            each.wait()
    assert told == [
        f"waiting up to 60 s for a vLLM server at `http://127.0.0.1:{port}`: connection refused",
        f"vLLM 0.32.0 serves `policy` at `http://127.0.0.1:{port}`",
    ]


def test_another_program_is_not_waited_for() -> None:
    port = free_port()
    with process("-m", "http.server", "--bind", "127.0.0.1", str(port)):
        until = time.monotonic() + 20
        while socket.socket().connect_ex(("127.0.0.1", port)) and time.monotonic() < until:
            time.sleep(0.05)
        begin = time.monotonic()
        with pytest.raises(RunError) as caught:
            looked(f"http://127.0.0.1:{port}", "vllm.server_timeout=300")
    first, second = str(caught.value).splitlines()
    assert first.startswith(
        f"`vllm.server_url`: what answers at `http://127.0.0.1:{port}` is no vLLM server: `/health` answered 404 (`SimpleHTTP"
    )
    assert second == ELSEWHERE
    assert time.monotonic() - begin < 60


@pytest.mark.parametrize(
    ("given", "more", "message"),
    [
        (("--owner", "library"), (), "is no vLLM server: its model is `owned_by` `library`\n" + ELSEWHERE),
        (
            ("--without", "/server_info"), (),
            'answered 404 to `/server_info?config_format=json`: {"detail": "Not Found"}\n'
            f"  start it with its development interface: {START}",
        ),
        (
            ("--mode", "raw_logprobs"), (),
            "gives `raw_logprobs`, and the correction compares log-probabilities as they were drawn from\n"
            "  start it with --logprobs-mode processed_logprobs, or take grpo.correction=false",
        ),
        (("--mode", "raw_logprobs"), ("grpo.correction=false",), None),
    ],
)  # fmt: skip
def test_one_that_cannot_serve_the_run(given: tuple[str, ...], more: tuple[str, ...], message: str | None) -> None:
    with standin(*given) as url:
        if message is None:
            assert looked(url, *more)
            return
        with pytest.raises(RunError) as caught:
            looked(url, *more)
    assert str(caught.value).endswith(message)


def test_a_server_says_how_long_a_completion_may_be() -> None:
    with standin("--longest", "77") as url:
        assert probe.server(memcfg.resolve(request(url))).longest == 77


def test_a_release_that_nobody_looked_at_is_said_to_be_one() -> None:
    assert probe.unknown(CHECKED[-1]) == probe.unknown(f"{CHECKED[-1]}+cpu") == ""
    assert probe.unknown("0.20.1") == f", a release that was not checked (checked: {', '.join(CHECKED)})"
