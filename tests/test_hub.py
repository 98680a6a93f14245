"""Whether the hub answers is asked once and briefly, and its clients are told."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from memcfg import hub


@pytest.fixture(autouse=True)
def network(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing said and nothing asked yet; clients that are loaded are left alone."""
    for name in (*hub.OFFLINE, "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name in ("huggingface_hub.constants", "datasets.config"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(HF_HUB_OFFLINE=False))  # type: ignore[misc]
    hub._answers.cache_clear()
    before = os.environ.copy()
    yield
    os.environ.clear()
    os.environ.update(before)
    hub._answers.cache_clear()


def test_a_hub_that_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")
        assert hub.reachable()
        assert "HF_HUB_OFFLINE" not in os.environ


def test_a_hub_that_does_not_answer_sends_its_clients_off_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{port}")  # nobody listens there any more
    assert not hub.reachable()
    assert not hub.reachable()
    assert os.environ["HF_HUB_OFFLINE"] == "1"
    assert sys.modules["huggingface_hub.constants"].HF_HUB_OFFLINE is True
    assert sys.modules["datasets.config"].HF_HUB_OFFLINE is True
    assert caplog.messages == ["`127.0.0.1` cannot be reached from here: only what was downloaded before is looked for"]


def test_a_name_that_is_looked_up_for_ever_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "PATIENCE", 0.05)
    ended = threading.Event()
    monkeypatch.setattr(hub, "_connect", lambda *_: ended.wait(60))
    assert not hub.reachable()
    assert not ended.is_set(), "the answer did not wait for the end of the look-up"
    ended.set()


def test_whoever_says_off_line_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: Any) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(hub, "_connect", asked)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert not hub.reachable()


ADDRESSES = [
    ({}, ("huggingface.co", 443), "the hub itself"),
    ({"HF_ENDPOINT": "http://mirror.lan:8080/hf"}, ("mirror.lan", 8080), "a mirror"),
    ({"https_proxy": "http://proxy.lan:3128"}, ("proxy.lan", 3128), "a proxy leads there"),
    ({"https_proxy": "proxy.lan:3128", "no_proxy": "huggingface.co"}, ("huggingface.co", 443), "a proxy for others"),
]


@pytest.mark.parametrize(("variables", "address", "because"), ADDRESSES)
def test_who_is_asked(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], address: Any, because: str) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert hub._address() == address, because
