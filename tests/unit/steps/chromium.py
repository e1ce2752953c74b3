"""A real Chromium, spoken to by its own protocol over two pipes; nothing has to be installed for it but the browser."""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def installed() -> str | None:
    """The browser's program; None where there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Page:
    """One tab."""

    def __init__(self, to: int, since: int) -> None:
        self._to, self._since = to, since
        self._numbers = itertools.count(1)
        self._rest = b""
        self._session: str | None = None
        self.requests: list[str] = []
        """The address of everything that was asked for."""

    def attach(self) -> None:
        """Open the tab."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Run one command and return its result."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def open(self, file: Path, *, width: int, dark: bool) -> None:
        """Show the file without any network."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setScrollbarsHidden", hidden=True)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=file.as_uri())
        while self._read().get("method") != "Page.loadEventFired":
            pass

    def value(self, script: str) -> Any:
        """What an expression comes to in the page."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def picture(self, file: Path) -> None:
        """The whole page as a PNG."""
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]))

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            more = os.read(self._since, 1 << 16)
            assert more, "the browser is gone"
            self._rest += more
        first, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(first)
        if message.get("method") == "Network.requestWillBeSent":
            self.requests.append(message["params"]["request"]["url"])
        return message


@contextmanager
def page(folder: Path) -> Iterator[Page]:
    """A tab of a browser of its own, which keeps what it has to keep in the folder."""
    (its_end, to), (since, its_other_end) = os.pipe(), os.pipe()
    # The browser reads from descriptor 3 and writes to 4, whatever they are here.
    command = (
        f'exec "$0" --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --user-data-dir="$1" '
        f"--remote-debugging-pipe 3<&{its_end} 4>&{its_other_end}"
    )
    browser = subprocess.Popen(
        ["bash", "-c", command, str(installed()), str(folder)],
        pass_fds=(its_end, its_other_end),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(its_end)
    os.close(its_other_end)
    try:
        tab = Page(to, since)
        tab.attach()
        yield tab
    finally:
        browser.terminate()
        browser.wait(timeout=60)
        os.close(to)
        os.close(since)
