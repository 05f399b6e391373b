"""Checks before the engine starts: the port is free, the coordinator accepts this kit.

The engine itself retries for ever, and says so only in its own log.
"""

from __future__ import annotations

import errno
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import closing
from datetime import datetime

from weft.errors import ConfigError
from weft.network.kits.kit_folder import Kit

#: Seconds for one try to reach the coordinator, and between two tries.
_TRY, _PAUSE = 5.0, 1.0
_LOOPBACK = ("localhost", "127.0.0.1")
#: What OpenSSL finds wrong with a certificate's time.
_OUT_OF_TIME = {9: "not valid yet", 10: "not valid any more"}


class Unreachable(ConfigError):
    """Nothing listens where the coordinator should be."""


def check_port_free(kit: Kit) -> None:
    """Refuse to serve on a port that another process uses."""
    host = "127.0.0.1" if kit.host in _LOOPBACK else ""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as probe:
        # As the engine does: what a killed server left behind is no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, kit.port))
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            why = "is taken by another process" if taken else f"cannot be used ({error.strerror})"
            raise ConfigError(
                f"port {kit.port}, on which {kit.path} serves, {why}; end that process, or make "
                "kits with another port"
            ) from None


def check_coordinator(kit: Kit) -> None:
    """Do one TLS handshake with the coordinator, each side showing its certificate.

    Raises
    ------
    Unreachable
        Nothing listens there.
    ConfigError
        One side does not trust the other.
    """
    where = f"the coordinator at {kit.host}:{kit.port}"
    context = ssl.create_default_context(cafile=str(kit.authority))
    context.load_cert_chain(str(kit.certificate), str(kit.key))
    context.set_alpn_protocols(["h2"])
    try:
        with (
            closing(socket.create_connection((kit.host, kit.port), timeout=_TRY)) as raw,
            closing(_shake_hands(context, raw, kit.host, where)) as tls,
        ):
            # The server speaks first; a refusal of our certificate shows only here.
            heard = tls.recv(1)
    except ssl.SSLCertVerificationError as error:
        if error.verify_code in _OUT_OF_TIME:
            raise ConfigError(
                f"{where} shows a certificate that is {_OUT_OF_TIME[error.verify_code]} by the "
                f"clock of this machine, which says {datetime.now():%Y-%m-%d %H:%M}; set the clock "
                "if it is wrong, or else ask the organiser of the federation for a new kit"
            ) from None
        raise ConfigError(
            f"{where} shows a certificate that this kit does not trust ({error.verify_message}); "
            "it is not that of your federation: ask its organiser"
        ) from None
    except ssl.SSLError:
        raise _refused(kit, where) from None
    except TimeoutError:
        raise Unreachable(_absent(where, "no answer")) from None
    except ConnectionResetError:
        raise _refused(kit, where) from None
    except OSError as error:
        raise Unreachable(_absent(where, error.strerror or str(error))) from None
    if not heard:
        raise _refused(kit, where)


def _shake_hands(
    context: ssl.SSLContext, raw: socket.socket, host: str, where: str
) -> ssl.SSLSocket:
    try:
        return context.wrap_socket(raw, server_hostname=host)
    except (ssl.SSLEOFError, ConnectionResetError):
        # Whoever refuses a certificate says so: here nobody stands behind the port, as where a
        # proxy has lost what it passes on to.
        raise Unreachable(_absent(where, "the connection was closed")) from None


def wait_for_coordinator(kit: Kit, seconds: float, told: Callable[[str], None]) -> None:
    """Retry for up to ``seconds`` while nothing listens there."""
    until = time.monotonic() + seconds
    first = True
    while True:
        try:
            check_coordinator(kit)
            return
        except Unreachable as error:
            if time.monotonic() > until:
                raise
            if first:
                told(f"waiting up to {seconds:g} s: {error}")
                first = False
        time.sleep(_PAUSE)


def _absent(where: str, why: str) -> str:
    return (
        f"{where} cannot be reached ({why}); start it with 'weft serve', or check address, port "
        "and firewall"
    )


def _refused(kit: Kit, where: str) -> ConfigError:
    return ConfigError(
        f"{where} refuses the certificate of {kit.path}; ask the organiser of the federation for "
        "a new kit"
    )
