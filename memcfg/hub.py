"""Whether the hub of models and data sets can be reached: asked once, for a few seconds at most.

The hub's own clients ask again and again, with pauses that grow, where there is no network: half a minute and more for each
name. Where it cannot be reached they are switched off line, as `HF_HUB_OFFLINE=1` does, and find what was downloaded before."""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
from functools import cache
from urllib.parse import urlsplit

log = logging.getLogger("memcfg.hub")

ENDPOINT = "https://huggingface.co"
PATIENCE = 5.0
"""Seconds that looking up and connecting may take."""
OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")


def reachable() -> bool:
    """Whether the hub can be reached. Where not, its clients are off line from here on, in this process and those that it
    starts."""
    return not any(os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE") for name in OFFLINE) and _answers()


@cache
def _answers() -> bool:
    host, port = _address()
    found: list[socket.socket] = []
    thread = threading.Thread(target=_connect, args=(host, port, found), daemon=True)
    thread.start()
    thread.join(PATIENCE)  # looking up a name knows no limit of its own
    if found:
        found[0].close()
        return True
    log.warning("`%s` cannot be reached from here: only what was downloaded before is looked for", host)
    _go_offline()
    return False


def _connect(host: str, port: int, found: list[socket.socket]) -> None:
    try:
        found.append(socket.create_connection((host, port), timeout=PATIENCE))
    except OSError:
        return


def _address() -> tuple[str, int]:
    """Host and port of the hub, or of the proxy that leads to it."""
    import urllib.request  # brings HTTP and TLS, which a command that asks for nothing would wait for

    hub = urlsplit(os.environ.get("HF_ENDPOINT") or ENDPOINT)
    proxies = urllib.request.getproxies()
    through = proxies.get(hub.scheme) or proxies.get("all")
    if through and not urllib.request.proxy_bypass(hub.hostname or ""):
        hub = urlsplit(through if "://" in through else f"http://{through}")
    return hub.hostname or "huggingface.co", hub.port or (80 if hub.scheme == "http" else 443)


def _go_offline() -> None:
    """Say so to clients that are loaded already, and to those that will be."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    for module, names in (
        ("huggingface_hub.constants", ("HF_HUB_OFFLINE",)),
        ("datasets.config", ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")),
    ):
        for name in names if module in sys.modules else ():
            setattr(sys.modules[module], name, True)
