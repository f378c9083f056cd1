"""Drives a page in headless Chromium over its pipe: opens it, runs scripts in it, and hears of errors and requests."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, Final

from support.metadata_log.browser import FLAGS, browser

PATIENCE_S: Final = 90
_OFFLINE: Final = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"


class Tab:
    """One page of a browser."""

    def __init__(self, send: Any, receive: Any) -> None:
        self._send, self._receive = send, receive
        self._last = 0
        self._session = ""
        self._inbox: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self.errors: list[str] = []
        """What the console and the page said of errors."""
        self.requests: list[str] = []
        """The addresses that the page and its workers have asked for."""
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        buffer = b""
        while chunk := os.read(self._receive, 1 << 16):
            *whole, buffer = (buffer + chunk).split(b"\0")
            for one in whole:
                self._hear(json.loads(one))
        self._inbox.put({"closed": True})

    def _hear(self, message: dict[str, Any]) -> None:
        method, params = message.get("method", ""), message.get("params", {})
        if "id" in message:
            self._inbox.put(message)
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
            self.errors.append(" ".join(str(one.get("value", one)) for one in params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        elif method == "Target.attachedToTarget" and params["targetInfo"]["type"] == "worker":
            self._tell("Network.enable", session=params["sessionId"])
            self._tell("Runtime.enable", session=params["sessionId"])

    def _tell(self, method: str, session: str | None = None, **params: Any) -> int:
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": params}
        if session or self._session:
            message["sessionId"] = session or self._session
        os.write(self._send, json.dumps(message).encode() + b"\0")
        return self._last

    def call(self, method: str, **params: Any) -> Any:
        """Call a method of the browser's protocol, and return its result."""
        number, until_s = self._tell(method, **params), monotonic() + PATIENCE_S
        while True:
            try:
                message = self._inbox.get(timeout=max(until_s - monotonic(), 0.01))
            except Empty:
                raise AssertionError(f"{method} has no answer; errors: {self.errors}") from None
            assert "closed" not in message, "the browser has ended"
            if message["id"] == number:
                assert "error" not in message, message["error"]
                return message["result"]

    def attach(self) -> None:
        """Open an empty page, and hear of everything that happens in it."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for method in ("Page.enable", "Runtime.enable", "Network.enable", "Log.enable", "DOM.enable"):
            self.call(method)
        self.call("Target.setAutoAttach", autoAttach=True, waitForDebuggerOnStart=False, flatten=True)

    def look_like(self, width: int, height: int, *, is_dark: bool = False, is_phone: bool = False) -> None:
        """Show the page in a window of this size."""
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=is_phone
        )

    def open(self, address: str) -> None:
        """Go to an address."""
        self.call("Page.navigate", url=address)

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page; a promise is awaited."""
        found = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, script: str) -> Any:
        """Wait until an expression in the page is true; returns its value."""
        poll = (
            "new Promise(resolve => { const look = () => { let value; try { value = ("
            + script
            + "); } catch { value = null; }"
            "value ? resolve(value) : setTimeout(look, 30); }; look(); })"
        )
        return self.evaluate(poll)

    def click(self, selector: str) -> None:
        """Click an element, which must be there, shown, and not disabled."""
        element = f"document.querySelector({json.dumps(selector)})"
        self.until(f"{element} && !{element}.disabled")
        assert self.evaluate(f"{element}.getClientRects().length > 0"), f"{selector} is not shown"
        self.evaluate(f"{element}.click()")

    def choose_files(self, selector: str, files: list[Path]) -> None:
        """Choose files in an input of the page."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[str(one) for one in files])

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """Store a picture of the page."""
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))


@contextmanager
def opened_tab(folder: Path) -> Iterator[Tab]:
    """A browser with one empty page, which reaches nothing but 127.0.0.1; `folder` holds its profile."""
    to_browser, send = os.pipe()
    receive, from_browser = os.pipe()
    script = 'exec "$0" "$@" 3<&"$IN" 4>&"$OUT"'
    flags = [flag for flag in FLAGS if not flag.startswith("--host-resolver-rules")]
    process = subprocess.Popen(
        ["bash", "-c", script, browser(), *flags, _OFFLINE, "--remote-debugging-pipe", f"--user-data-dir={folder}"],
        pass_fds=(to_browser, from_browser),
        env={**os.environ, "IN": str(to_browser), "OUT": str(from_browser)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_browser)
    os.close(from_browser)
    tab = Tab(send, receive)
    try:
        tab.attach()
        yield tab
        tab.call("Browser.close")
    finally:
        os.close(send)
        process.terminate()
        process.wait(timeout=30)


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


_Quiet.extensions_map = {**SimpleHTTPRequestHandler.extensions_map, ".mjs": "text/javascript", ".js": "text/javascript"}


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a web server of a folder, as any host of static files."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
