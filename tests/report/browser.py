"""A headless Chromium for tests, driven through chromedriver's W3C interface."""

import base64
import json
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager
from http.client import HTTPConnection
from tempfile import TemporaryDirectory

DRIVER, CHROMIUM = shutil.which("chromedriver"), shutil.which("chromium")
MISSING = DRIVER is None or CHROMIUM is None
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-extensions", "--disable-dev-shm-usage", "--hide-scrollbars"),
)
#: Under which W3C's protocol writes the number of an element.
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


class Browser:
    """One window; what a page's script throws is in `complaints`."""

    def __init__(self, port, profile):
        # Waiting for the driver's answers costs no processor time; one connection serves them all.
        self._connection = HTTPConnection("127.0.0.1", port, timeout=60)
        options = {"binary": CHROMIUM, "args": [*_FLAGS, f"--user-data-dir={profile}"]}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        given = self._send("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._session = f"/session/{given['sessionId']}"
        # A click must not meet a page that still scrolls.
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.devtools("Emulation.setEmulatedMedia", features=[still])

    def _send(self, method, path, body=None):
        text = None if body is None else json.dumps(body)
        self._connection.request(method, path, text, {"Content-Type": "application/json"})
        answer = json.loads(self._connection.getresponse().read())["value"]
        if isinstance(answer, dict) and "error" in answer:
            raise RuntimeError(f"{answer['error']}: {answer['message']}")
        return answer

    def _post(self, path, **body):
        return self._send("POST", f"{self._session}/{path}", body)

    def open(self, path):
        self.visit(path.resolve().as_uri())

    def visit(self, address):
        self._post("url", url=address)
        self.wait("return document.readyState === 'complete'")

    def wait(self, script, seconds=30):
        """Wait until a script returns something true: a busy machine draws late."""
        end = time.monotonic() + seconds
        while not self.run(script):
            assert time.monotonic() < end, f"still not: {script}"
            time.sleep(0.05)

    def run(self, script, *arguments):
        """What a script returns."""
        return self._post("execute/sync", script=script, args=list(arguments))

    def click(self, selector):
        """A real click at the element's middle, which fails where something lies above it."""
        found = self._post("element", using="css selector", value=selector)[_ELEMENT]
        self._post(f"element/{found}/click")

    def press(self, key):
        """A key, for whatever has the focus."""
        for kind in ("rawKeyDown", "keyUp"):
            self.devtools("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def type(self, selector, text):
        """Take the place of what a field holds."""
        found = self._post("element", using="css selector", value=selector)[_ELEMENT]
        self._post(f"element/{found}/clear")
        if text:
            self._post(f"element/{found}/value", text=text)

    def devtools(self, command, **parameters):
        return self._post("goog/cdp/execute", cmd=command, params=parameters)

    def resize(self, width, height=900):
        self.devtools(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )

    def complaints(self):
        """What the console has said since the last time."""
        return [entry["message"] for entry in self._post("se/log", type="browser")]

    def screenshot(self, path, *, whole=False):
        shown = self.devtools("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shown["data"]))

    def quit(self):
        self._send("DELETE", self._session)
        self._connection.close()


@contextmanager
def open_browser():
    """A browser with an empty profile, which is gone with its profile afterwards."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        driver = subprocess.Popen(
            [DRIVER, f"--port={port}", "--silent"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            _wait_for(port)
            browser = Browser(port, profile)
            try:
                yield browser
            finally:
                browser.quit()
        finally:
            driver.terminate()
            driver.wait(timeout=20)


def _wait_for(port):
    until = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)
