"""A browser without a window, driven by its debugging protocol over two pipes: no port, no library."""

from __future__ import annotations

import base64
import fcntl
import itertools
import json
import os
import select
import shutil
import subprocess
import time

import pytest

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def browser_program():
    for name in PROGRAMS:
        path = shutil.which(name)
        if path:
            return path
    pytest.skip("no Chromium: apt-get install chromium-headless-shell")


class Browser:
    """One page. Everything it prints on its console, every exception and every request is kept."""

    def __init__(self, folder):
        self.console, self.requests, self._answers, self._events = [], [], {}, []
        commands, self._commands = os.pipe()
        self._replies, replies = os.pipe()
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 64) for end in (commands, replies)]

        def take_ends():
            os.dup2(ends[0], 3)  # where --remote-debugging-pipe reads
            os.dup2(ends[1], 4)  # ... and writes

        self._log = open(folder / "browser.log", "wb")
        self.process = subprocess.Popen(
            [
                browser_program(), "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
                "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run", f"--user-data-dir={folder}/profile",
                "about:blank",
            ],
            stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, close_fds=False, preexec_fn=take_ends,
        )
        for end in (commands, replies, *ends):
            os.close(end)
        self._buffer, self._numbers, self._session = b"", itertools.count(1), None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self):
        self.process.kill()
        self.process.wait()
        for end in (self._commands, self._replies):
            os.close(end)
        self._log.close()

    # ---- the protocol ----------------------------------------------------------------------------

    def call(self, method, **parameters):
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        self._read_until(lambda: number in self._answers, method)
        answer = self._answers.pop(number)
        assert "error" not in answer, (method, answer["error"])
        return answer["result"]

    def _read_until(self, done, what, timeout=60):
        deadline = time.monotonic() + timeout
        while not done():
            left = deadline - time.monotonic()
            assert left > 0, f"the browser did not answer {what} in {timeout} s"
            if select.select([self._replies], [], [], left)[0]:
                got = os.read(self._replies, 1 << 20)
                assert got, f"the browser ended at {what}"
                self._buffer += got
                *messages, self._buffer = self._buffer.split(b"\0")
                for message in messages:
                    self._take(json.loads(message))

    def _take(self, message):
        if "id" in message:
            self._answers[message["id"]] = message
            return
        method, said = message["method"], message["params"]
        self._events.append(method)
        if method == "Runtime.consoleAPICalled":
            self.console.append(" ".join(str(part.get("value")) for part in said["args"]))
        elif method == "Runtime.exceptionThrown":
            details = said["exceptionDetails"]
            self.console.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Log.entryAdded":
            self.console.append(said["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(said["request"]["url"])

    # ---- what a person does ----------------------------------------------------------------------

    def look(self, width=1400, height=900, dark=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, path):
        """Seconds until the page has loaded, its script has run and it was drawn."""
        self._events.clear()
        began = time.monotonic()
        self.call("Page.navigate", url=path.resolve().as_uri())
        self._read_until(lambda: "Page.loadEventFired" in self._events, "the page's load")
        self.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)))")
        return time.monotonic() - began

    def evaluate(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, (expression, result["exceptionDetails"])
        return result["result"].get("value")

    def click(self, x, y, count=1):
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=count)

    def click_on(self, selector, part=(0.5, 0.5), offset=None):
        """On an element, scrolled into view: in its middle, or `offset` pixels from its corner."""
        x, y, width, height = self.evaluate(
            f"(() => {{ const found = document.querySelector({json.dumps(selector)});"
            " found.scrollIntoView({block: 'center'}); const box = found.getBoundingClientRect();"
            " return [box.x, box.y, box.width, box.height]; })()"
        )
        at = offset or (width * part[0], height * part[1])
        self.click(x + at[0], y + at[1])

    def key(self, key, text=None):
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def type(self, selector, text):
        self.evaluate(f"document.querySelector({json.dumps(selector)}).focus()")
        self.call("Input.insertText", text=text)

    def picture(self, path, whole=False):
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole, fromSurface=True)
        path.write_bytes(base64.b64decode(shot["data"]))
