# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium that a test drives through DevTools' pipe: no port, no driver, no package.

Messages are JSON, each closed by a NUL, on the browser's descriptors 3 and 4
(https://chromedevtools.github.io/devtools-protocol/).
"""

import base64
import fcntl
import itertools
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars"),
    "--remote-debugging-pipe",
)
PATIENCE_S = 60.0
KEYS = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowDown": 40, "ArrowUp": 38}


def executable() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Chromium:
    """A browser with one page, whose profile is a folder of its own."""

    def __init__(self, profile: Path) -> None:
        (reads, self._to), (self._from, writes) = os.pipe(), os.pipe()
        theirs = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (reads, writes)]  # neither may be 3 or 4
        line = 'exec "$0" "$@" 3<&{} 4>&{}'.format(*theirs)
        command = ["bash", "-c", line, str(executable()), *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(
            command, pass_fds=theirs, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for end in (reads, writes, *theirs):
            os.close(end)
        self._numbers, self._bytes, self._session = itertools.count(1), b"", ""
        self.complaints: list[str] = []
        """What the console, the policy and uncaught exceptions said."""
        self.requests: list[str] = []
        """Addresses that pages asked for."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; events are noted on the way."""
        number, session = next(self._numbers), {"sessionId": self._session} if self._session else {}
        os.write(self._to, json.dumps({"id": number, "method": method, "params": params, **session}).encode() + b"\0")
        while (message := self._message()).get("id") != number:
            self._note(message)
        assert "error" not in message, message
        return message["result"]

    def open(self, path: Path, fragment: str = "") -> None:
        """Load a file anew and wait until its scripts ran."""
        self.ask("Page.navigate", url="about:blank")
        self.ask("Page.navigate", url=f"{path.as_uri()}{fragment}")
        self.wait(f"location.pathname === {json.dumps(path.as_uri().removeprefix('file://'))}"
                  " && document.readyState === 'complete'")  # fmt: skip

    def value(self, expression: str) -> Any:
        """The value of an expression, of a promise what it ends in."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, expression: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not self.value(expression):
            assert time.monotonic() < deadline, f"{expression} never held; {self.complaints}"
            time.sleep(0.02)

    def click(self, selector: str) -> None:
        box = f"document.querySelector({json.dumps(selector)})"
        x, y = self.value(f"(e => {{ e.scrollIntoView({{block: 'center'}}); const b = e.getBoundingClientRect(); "
                          f"return [b.x + b.width / 2, b.y + b.height / 2]; }})({box})")  # fmt: skip
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str) -> None:
        facts = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key]}
        self.ask("Input.dispatchKeyEvent", type="keyDown", **facts, **({"text": "\r"} if key == "Enter" else {}))
        self.ask("Input.dispatchKeyEvent", type="keyUp", **facts)

    def write(self, text: str) -> None:
        """Type into what has the focus."""
        self.ask("Input.insertText", text=text)

    def resize(self, width: int, height: int, dark: bool = False) -> None:
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.ask("Emulation.setEmulatedMedia", features=scheme)

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"]))

    def close(self) -> None:
        os.close(self._to)  # It ends when nobody can speak to it any more.
        try:
            self._process.wait(300)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._from)

    def _message(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE_S
        while b"\0" not in self._bytes:
            ready, _, _ = select.select([self._from], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "Chromium does not answer"
            read = os.read(self._from, 1 << 20)
            assert read, f"Chromium has ended with {self._process.wait()}"
            self._bytes += read
        text, _, self._bytes = self._bytes.partition(b"\0")
        return json.loads(text)

    def _note(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.complaints.append(str(params["exceptionDetails"]))
            case "Log.entryAdded":
                self.complaints.append(str(params["entry"]["text"]))
            case "Runtime.consoleAPICalled":
                self.complaints.append(str(params["args"]))
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
