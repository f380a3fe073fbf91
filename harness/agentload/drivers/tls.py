"""TLS towards a target: always verified, by the system's authorities or by those that the user names."""

from __future__ import annotations

import ssl
from typing import Any, TypeVar

from agentload.errors import UsageError
from agentload.targets._tls import Trust
from fake_provider.named_file import require_regular

_EXPIRED, _NOT_YET, _OTHER_NAME, _OTHER_ADDRESS = 10, 9, 62, 64
_BY_NOBODY = (18, 19, 20, 21)
"""`X509_V_ERR_…` of OpenSSL's x509_vfy.h."""
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL")
C = TypeVar("C", bound=Any)
MAX_BYTES = 16 * 2**20
"""Of a file of certificates: all of the usual authorities have a quarter of one MiB."""


def context(trust: Trust | None) -> ssl.SSLContext:
    """For a client. Raises OSError or ssl.SSLError for files that cannot be used (see `check`)."""
    return trusting(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), trust)


def trusting(made: C, trust: Trust | None) -> C:
    """The same for a client's context that was made elsewhere (gevent has its own)."""
    for path in () if trust is None else filter(None, (trust.ca, trust.client_cert, trust.client_key)):
        require_regular(path, MAX_BYTES)  # OpenSSL opens it by its name, again for each context
    if trust is None or trust.ca is None:
        made.load_default_certs()
    else:
        made.load_verify_locations(trust.ca)
    if trust is not None and trust.client_cert is not None:
        # A callback that gives no password: OpenSSL would ask for one at the terminal.
        made.load_cert_chain(trust.client_cert, trust.client_key, password=lambda: "")
    return made


def check(trust: Trust | None, where: str) -> None:
    """Raises UsageError, one line, for files that are not there or hold no certificate."""
    if trust is None:
        return
    for name in ("ca", "client_cert"):
        path = getattr(trust, name)
        if path is None:
            continue
        alone = Trust(ca=path) if name == "ca" else Trust(client_cert=path, client_key=trust.client_key)
        try:
            context(alone)
        except ssl.SSLError:
            holds = "certificates (PEM)" if name == "ca" else "a certificate and its key (PEM, no password)"
            raise UsageError(f"{where}: tls.{name} {path}: does not hold {holds}") from None
        except OSError as error:
            raise UsageError(f"{where}: tls.{name} {path}: cannot be read: {_said(error)}") from None


def trouble(error: ssl.SSLError) -> str:
    """What is wrong, in words that a person can act on."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _of_certificate(error)
    if isinstance(error, ssl.SSLEOFError):
        return "breaks the TLS connection off: does it want tls.client_cert?"
    reason = error.reason or ""
    if reason in _NO_TLS:
        return "does not speak TLS there (is it http://?)"
    if "CERTIFICATE_REQUIRED" in reason or "HANDSHAKE_FAILURE" in reason:
        return f"refuses the TLS handshake ({_plain(reason)}): does it want tls.client_cert?"
    return f"TLS fails: {_plain(reason) or _said(error)}"


def _of_certificate(error: ssl.SSLCertVerificationError) -> str:
    code = error.verify_code
    if code in _BY_NOBODY:
        return "its certificate is signed by nobody who is trusted here: name its CA, tls: {ca: FILE}"
    if code == _EXPIRED:
        return "its certificate has expired"
    if code == _NOT_YET:
        return "its certificate is not valid yet"
    if code in (_OTHER_NAME, _OTHER_ADDRESS):
        return f"its certificate is for another name: {error.verify_message.rstrip('.').lower()}"
    return f"its certificate is not accepted: {error.verify_message}"


def _plain(reason: str) -> str:
    return reason.lower().replace("_", " ")


def _said(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
