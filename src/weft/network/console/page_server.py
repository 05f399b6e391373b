"""Serves the live page to a browser of this machine, and to nobody else.

It listens on the loopback only. Other users of the machine, and pages that a browser has open, can
reach that too: every address begins with random words that only the owner of the process was told,
and a request that names another host (a name that was rebound to this address) is refused. Nothing
can be changed: there is nothing but GET, and no file is read by its name.
"""

from __future__ import annotations

import hmac
import json
import re
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from secrets import token_urlsafe
from threading import Lock

from weft.errors import ConfigError, WeftError
from weft.network.console.page import STATE, content_policy, page_of, state_of
from weft.network.console.shared_view_records import FederationView, Viewpoint

_LOOPBACK = "127.0.0.1"
#: Seconds for which a look is good enough for all who ask, and that a caller may take to ask.
_FRESH, _PATIENCE = 1.5, 10.0
#: A full path, as sentences have it.
_PATH = re.compile(r"(?<![\w:/])/[^\s;,()'\"]+")
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class PageServer(ThreadingHTTPServer):
    """The page of one viewpoint, from `serve_forever` to `shutdown`.

    Parameters
    ----------
    port
        On the loopback; 0: a free one.
    """

    daemon_threads = True

    def __init__(self, viewpoint: Viewpoint, port: int = 0) -> None:
        try:
            super().__init__((_LOOPBACK, port), _Request)
        except OSError as error:
            raise ConfigError(
                f"port {port} of this machine cannot be used ({error.strerror or error}); name "
                "another one with --port, or none for a free one"
            ) from None
        self.secret = token_urlsafe(24)
        self._viewpoint = viewpoint
        self._lock = Lock()
        self._seen: tuple[float, FederationView | WeftError] | None = None

    @property
    def address(self) -> str:
        """What to open in a browser."""
        return f"http://{_LOOPBACK}:{self.server_port}/{self.secret}/"

    def is_here(self, host: str) -> bool:
        """Whether a request names this server, and not a name that leads to it."""
        return host in (f"{_LOOPBACK}:{self.server_port}", f"localhost:{self.server_port}")

    def look(self) -> FederationView:
        """How things stand; one look serves all who ask at the same time."""
        with self._lock:
            if self._seen is None or time.monotonic() - self._seen[0] > _FRESH:
                found: FederationView | WeftError
                try:
                    found = self._viewpoint.look()
                except WeftError as error:
                    found = error
                self._seen = time.monotonic(), found
            seen = self._seen[1]
        if isinstance(seen, WeftError):
            raise seen
        return seen


def _told(error: WeftError) -> str:
    """A sentence without paths of this machine, which are no business of a page."""
    return _PATH.sub("…", error.told)


class _Request(BaseHTTPRequestHandler):
    """One request."""

    server: PageServer
    timeout = _PATIENCE
    server_version, sys_version = "Weft", ""
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if not self.server.is_here(self.headers.get("Host", "")):
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST)
        elif self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            self._refuse(HTTPStatus.FORBIDDEN)
        else:
            secret, _, rest = self.path.removeprefix("/").partition("/")
            if not hmac.compare_digest(secret.encode(), self.server.secret.encode()):
                self._refuse(HTTPStatus.NOT_FOUND)
            elif rest == "":
                self._tell_page()
            elif rest == STATE:
                self._tell_state()
            else:
                self._refuse(HTTPStatus.NOT_FOUND)

    def _no(self) -> None:
        self._refuse(HTTPStatus.METHOD_NOT_ALLOWED)

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _no

    def _tell_page(self) -> None:
        try:
            page = page_of(self.server.look())
        except WeftError as error:
            told = f"weft: {_told(error)}\n"
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, told, "text/plain")
            return
        self._answer(HTTPStatus.OK, page, "text/html")

    def _tell_state(self) -> None:
        try:
            told = state_of(self.server.look())
        except WeftError as error:
            told = {"trouble": _told(error)}
        text = json.dumps(told, ensure_ascii=False, allow_nan=False)
        self._answer(HTTPStatus.OK, text, "application/json")

    def _refuse(self, status: HTTPStatus) -> None:
        # What is left of the request is not read.
        self.close_connection = True
        self._answer(status, f"{status.phrase}\n", "text/plain")

    def _answer(self, status: HTTPStatus, text: str, kind: str) -> None:
        content = text.encode()
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Security-Policy", content_policy())
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """The terminal has the address, and needs no line for every question."""
