"""A headless Chromium, driven over its debugging pipe: no driver program and no package is needed.

The DevTools protocol is JSON with a zero byte at the end of every message; Chromium reads them from descriptor 3 and
writes to 4.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",  # in a container there is nothing to build one with
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-pipe",
)
SECONDS = 90


def find_chromium() -> str | None:
    """The first Chromium or Chrome on the path."""
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    return next((found for name in names if (found := shutil.which(name))), None)


class Browser:
    """One page.  `requests` are the addresses it asked for, `complaints` what it wrote to the console as error or
    warning."""

    def __init__(self, read: int, write: int) -> None:
        self.read, self.write = read, write
        self.buffer, self.number, self.session = b"", 0, ""
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.loaded = 0
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command and its answer; events that arrive meanwhile are noted."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        for answer in self._messages():
            if answer.get("id") == self.number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
        raise AssertionError("the browser ended")

    def open(self, path: Path) -> None:
        """Load a file and wait until it has loaded."""
        before = self.loaded
        self.call("Page.navigate", url=path.resolve().as_uri())
        while self.loaded == before:
            self.evaluate("0")
            time.sleep(0.05)

    def evaluate(self, script: str) -> Any:
        """The value of an expression; a promise is awaited."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def media(self, *, scheme: str = "light", kind: str = "screen") -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=kind, features=features)

    def size(self, width: int, height: int) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def screenshot(self, path: Path, *, whole: bool = True) -> Path:
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))
        return path

    def pdf(self, path: Path) -> Path:
        path.write_bytes(base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"]))
        return path

    def press(self, key: str) -> None:
        text = key if len(key) == 1 else ""
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def mouse(self, kind: str, x: float, y: float) -> None:
        button = "none" if kind == "mouseMoved" else "left"
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, clickCount=1)

    def _messages(self) -> Iterator[dict[str, Any]]:
        deadline = time.monotonic() + SECONDS
        while True:
            while b"\0" in self.buffer:
                raw, _, self.buffer = self.buffer.partition(b"\0")
                message = json.loads(raw)
                self._note(message)
                yield message
            ready, _, _ = select.select([self.read], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"the browser said nothing for {SECONDS} s"
            chunk = os.read(self.read, 1 << 20)
            if not chunk:
                return
            self.buffer += chunk

    def _note(self, message: dict[str, Any]) -> None:
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Page.loadEventFired":
            self.loaded += 1
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(parameters["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(parameters["args"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.complaints.append(parameters["entry"]["text"])


@contextmanager
def browser(executable: str) -> Iterator[Browser]:
    """A fresh profile, removed afterwards."""
    to_browser, from_browser = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile:
        # the shell puts our ends where Chromium looks for them, whatever numbers they have here
        move = f'exec "$@" 3<&{to_browser[0]} 4>&{from_browser[1]}'
        words = ["bash", "-c", move, "bash", executable, *FLAGS, f"--user-data-dir={profile}"]
        process = subprocess.Popen(
            words,
            pass_fds=(to_browser[0], from_browser[1]),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": profile},
        )
        os.close(to_browser[0])
        os.close(from_browser[1])
        try:
            yield Browser(from_browser[0], to_browser[1])
        finally:
            os.close(to_browser[1])  # Chromium ends when nobody can talk to it any more
            os.close(from_browser[0])
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
