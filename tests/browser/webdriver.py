"""A browser under remote control: the few commands of the WebDriver protocol that tests need, over chromedriver."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

PROGRAMS = ("chromium", "chromedriver")
_STARTED = re.compile(rb"started successfully on port (\d+)")
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


def missing() -> str:
    """Which program is not there; empty where all are."""
    return next((program for program in PROGRAMS if shutil.which(program) is None), "")


class Browser:
    """One window. What a command refuses is an error with the browser's own text."""

    def __init__(self, session: str) -> None:
        self._session = session

    def open(self, url: str) -> None:
        """Load a page and wait until it is there."""
        _call("POST", f"{self._session}/url", {"url": url})

    @property
    def url(self) -> str:
        return str(_call("GET", f"{self._session}/url"))

    def run(self, script: str, *arguments: Any) -> Any:
        """What a script returns."""
        return _call("POST", f"{self._session}/execute/sync", {"script": script, "args": arguments})

    def text(self, selector: str = "body") -> str:
        """The text that a person sees."""
        return str(self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector))

    def source(self) -> str:
        """The page as it is now, whatever is visible."""
        return str(self.run("return document.documentElement.outerHTML"))

    def click(self, selector: str) -> None:
        """Click as a person does: the element must be visible."""
        _call("POST", f"{self._session}/element/{self._find(selector)}/click", {})

    def type(self, selector: str, text: str) -> None:
        """Type into an element."""
        _call("POST", f"{self._session}/element/{self._find(selector)}/value", {"text": text})

    def press(self, *keys: str) -> None:
        """Press keys where the focus is."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        _call("POST", f"{self._session}/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def until(self, holds: Callable[[], Any], seconds: float = 10.0) -> float:
        """Wait for something; gives the seconds it took, and fails with what the page shows."""
        began = time.monotonic()
        while not holds():
            if time.monotonic() - began > seconds:
                raise AssertionError(f"not within {seconds} s; the page shows:\n{self.text()}")
            time.sleep(0.05)
        return time.monotonic() - began

    def resize(self, width: int, height: int) -> None:
        """The size of what is inside of the window."""
        self._develop(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    def prefer(self, scheme: str) -> None:
        """Light or dark."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self._develop("Emulation.setEmulatedMedia", features=[feature])

    def screenshot(self, file: Path) -> None:
        """What is inside of the window, as a PNG."""
        file.write_bytes(base64.b64decode(_call("GET", f"{self._session}/screenshot")))

    def complaints(self) -> list[str]:
        """What the browser logged as an error since the last call: refused by the page's policy, not found, raised."""
        found = _call("POST", f"{self._session}/se/log", {"type": "browser"})
        return [entry["message"] for entry in found if entry["level"] == "SEVERE"]

    def _find(self, selector: str) -> str:
        found = _call("POST", f"{self._session}/element", {"using": "css selector", "value": selector})
        return str(found[_ELEMENT])

    def _develop(self, command: str, **parameters: Any) -> None:
        _call("POST", f"{self._session}/goog/cdp/execute", {"cmd": command, "params": parameters})


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser without a window of its own, while the block runs."""
    with subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as driver:
        try:
            server = f"http://127.0.0.1:{_port(driver)}"
            switches = [
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--window-size=1400,900",
            ]
            options = {"args": switches}
            wanted = {
                "browserName": "chrome",
                "goog:chromeOptions": options,
                "goog:loggingPrefs": {"browser": "SEVERE"},
            }
            session = _call("POST", f"{server}/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
            address = f"{server}/session/{session}"
            try:
                yield Browser(address)
            finally:
                _call("DELETE", address)
        finally:
            driver.terminate()


def _port(driver: subprocess.Popen[bytes]) -> int:
    assert driver.stdout is not None
    for line in driver.stdout:
        if found := _STARTED.search(line):
            return int(found[1])
    raise RuntimeError("chromedriver ended before it listened")


def _call(method: str, url: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]
    except HTTPError as error:
        raise RuntimeError(json.load(error)["value"]["message"]) from error
