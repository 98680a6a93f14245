"""Open a page of memcfg's in headless Chromium, use it as a reader would, and say what is wrong with it.

    python tools/look_at_report.py RUN/report.html [--shots FOLDER]

Looked at wide and on a phone, light and dark: nothing on the console, nothing fetched, nothing wider than the screen, every
text with enough contrast, every part that opens opened, the cursor moved over every curve with mouse and keyboard, tables
filtered. Exit code 1 where something is wrong. Needs Chromium (or Chrome) and nothing else: it is driven over a pipe."""

from __future__ import annotations

import argparse
import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--remote-debugging-pipe")  # fmt: skip
SCREENS = {
    "wide": (1280, 900, "light"),
    "wide-dark": (1280, 900, "dark"),
    "phone": (390, 844, "light"),
    "phone-dark": (390, 844, "dark"),
}
PATIENCE = 30.0

OPEN_ALL = "document.querySelectorAll('details').forEach(part => { part.open = true }); document.querySelectorAll('details').length"
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
CONTRAST = """
(() => {
  const parts = (text) => (text.match(/[\\d.]+/g) || [0, 0, 0, 0]).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255).map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = parts(getComputedStyle(at).backgroundColor);
      if (color.length < 4 || color[3] > 0) return color;
    }
    return [255, 255, 255];
  };
  const poor = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || ["SCRIPT", "STYLE", "title"].includes(element.tagName)) continue;
    const style = getComputedStyle(element);
    const ink = light(parts(element.namespaceURI.endsWith("svg") ? style.fill : style.color));
    const paper = light(behind(element));
    const ratio = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    if (ratio < 4.5) poor.add(`${ratio.toFixed(2)}: ${element.tagName.toLowerCase()} "${walker.currentNode.textContent.trim().slice(0, 40)}"`);
  }
  return [...poor];
})()
"""
CURVES = """
(() => {
  const told = [];
  for (const figure of document.querySelectorAll("figure[data-chart]")) {
    const plot = figure.querySelector(".plot"), where = figure.querySelector(".where");
    plot.scrollIntoView({ block: "center" });
    const box = plot.getBoundingClientRect(), last = where.textContent;
    const event = { clientX: box.left, clientY: box.top + 10, bubbles: true };
    plot.dispatchEvent(new PointerEvent("pointermove", event));
    const first = where.textContent;
    plot.focus();
    plot.dispatchEvent(new KeyboardEvent("keydown", { key: "End", bubbles: true }));
    const stops = JSON.parse(figure.dataset.chart).lines.flat().map((point) => point[0]);
    const several = new Set(stops).size > 1;
    if (several && first === last) told.push(`the cursor does not move over ${plot.getAttribute("aria-label")}`);
    if (document.activeElement !== plot) told.push("a curve does not take the focus");
    if (several && where.textContent === first) told.push("the keyboard does not move the cursor");
    if ([...figure.querySelectorAll("output")].some((out) => !out.textContent.trim())) told.push("a curve without a value");
  }
  return told;
})()
"""
FILTERS = """
(() => {
  const told = [];
  for (const input of document.querySelectorAll("input[data-filter]")) {
    const rows = [...document.querySelectorAll(`#${input.dataset.filter} tbody tr`)];
    const shown = (text) => { input.value = text; input.dispatchEvent(new Event("input")); return rows.filter((row) => row.getClientRects().length).length; };
    const [all, one, none, again] = [shown(""), shown(rows[0].querySelector("th").textContent), shown("no such thing"), shown("")];
    if (input.hidden || all !== rows.length || one < 1 || one >= all || none !== 0 || again !== all) told.push(`the filter of ${input.dataset.filter}: ${[all, one, none, again]}`);
  }
  return told;
})()
"""
LINKS = """
(() => [...document.querySelectorAll("a[href^='#']")].filter((link) => {
  link.click();
  return !document.getElementById(link.hash.slice(1)) || location.hash !== link.hash;
}).map((link) => `${link.hash} leads nowhere`))()
"""


def browser() -> str | None:
    """The path of a browser that can be driven, if there is one."""
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


class Chromium:
    """A browser, spoken to in its DevTools protocol. `said`: what the page put on its console; `asked`: what it fetched."""

    def __init__(self, process: subprocess.Popen[bytes], write: int, read: int) -> None:
        self.process, self._write, self._read = process, write, read
        self._number, self._rest, self.session = 0, b"", ""
        self.said: list[str] = []
        self.asked: list[str] = []

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return dict(answer["result"])
            self._heard(answer)

    def value(self, script: str) -> Any:
        """What a script in the page comes to. Raises `RuntimeError` where it fails."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]["exception"].get("description")))
        return answer["result"].get("value")

    def attach(self) -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def open(self, page: Path) -> None:
        self.call("Page.navigate", url=page.resolve().as_uri())
        until = time.monotonic() + PATIENCE
        while self.value("document.readyState") != "complete" or self.value("location.protocol") != "file:":
            if time.monotonic() > until:
                raise RuntimeError(f"{page} does not load")
            time.sleep(0.02)

    def picture(self, target: Path) -> None:
        """The whole page, from top to bottom."""
        self.value("scrollTo(0, 0)")
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        target.write_bytes(base64.b64decode(shot["data"]))

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            more = os.read(self._read, 1 << 16)
            if not more:
                raise RuntimeError("the browser went away")
            self._rest += more
        message, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(message))

    def _heard(self, event: dict[str, Any]) -> None:
        method, told = event.get("method"), event.get("params", {})
        if method == "Runtime.consoleAPICalled":
            self.said.append(" ".join(str(arg.get("value", arg.get("description"))) for arg in told["args"]))
        elif method == "Runtime.exceptionThrown":
            details = told["exceptionDetails"]
            self.said.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Log.entryAdded":
            self.said.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self.asked.append(told["request"]["url"])


@contextmanager
def chromium() -> Iterator[Chromium]:
    """A browser with an empty profile, closed at the end. Raises `RuntimeError` where none is installed."""
    path = browser()
    if path is None:
        raise RuntimeError(f"none of {', '.join(BROWSERS)} is installed")
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()
    with tempfile.TemporaryDirectory(prefix="memcfg-look-", ignore_cleanup_errors=True) as profile:
        # the protocol's pipes are the descriptors 3 and 4; a shell puts them there, whatever their numbers are here
        line = f'exec "$0" "$@" 3<&{to_read} 4>&{from_write}'
        command = ["bash", "-c", line, path, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        with subprocess.Popen(
            command, pass_fds=(to_read, from_write), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        ) as process:
            os.close(to_read)
            os.close(from_write)
            found = Chromium(process, to_write, from_read)
            try:
                found.attach()
                yield found
                found.session = ""
                found.call("Browser.close")
            except BaseException:
                process.kill()
                raise
            finally:
                process.wait(PATIENCE)
                os.close(to_write)
                os.close(from_read)


def look(found: Chromium, page: Path, shots: Path | None = None) -> list[str]:
    """Everything that is wrong with a page, in words; pictures of every screen go to `shots`."""
    wrong: list[str] = []
    for name, (width, height, scheme) in SCREENS.items():
        found.said.clear()
        found.asked.clear()
        found.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        found.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        found.open(page)
        if shots is not None:
            found.picture(shots / f"{page.parent.name}-{page.stem}-{name}.png")
        told = [*found.value(CURVES), *found.value(LINKS), *_opened(found), *found.value(FILTERS)]
        told += [f"contrast {text}" for text in found.value(CONTRAST)]
        told += [f"on the console: {text}" for text in found.said]
        own = page.resolve().as_uri()
        told += [f"fetches {url}" for url in found.asked if url.partition("#")[0] != own]
        wrong += [f"{name}: {text}" for text in told]
    return wrong


def _opened(found: Chromium) -> list[str]:
    """Open everything that opens; what is wider than the screen then, or before, is wrong."""
    before = found.value(OVERFLOW)
    found.value(OPEN_ALL)
    after = found.value(OVERFLOW)
    return [
        f"{px} pixels wider than the screen{said}" for px, said in ((before, ""), (after, ", all opened")) if px > 0
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--shots", type=Path, help="a folder for pictures")
    said = parser.parse_args()
    if said.shots is not None:
        said.shots.mkdir(parents=True, exist_ok=True)
    wrong = []
    with chromium() as found:
        for page in said.pages:
            wrong += [f"{page}: {text}" for text in look(found, page, said.shots)]
    print("\n".join(wrong) if wrong else f"{len(said.pages)} pages, {len(SCREENS)} screens each: nothing is wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
