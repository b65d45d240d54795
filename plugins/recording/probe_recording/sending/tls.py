"""TLS of both ends: contexts from a directory of certificates, and one sentence on each failure.

The receiver's directory holds ``server.key`` and ``server.crt``. If it also holds ``client.crt`` or
``ca.crt``, the sender must present that certificate, or one that the authority signed. The sender's directory
holds ``server.crt``, the only certificate that it accepts, or ``ca.crt``, an authority, whose certificates
must then name the host. With ``client.key`` and ``client.crt`` the sender presents its own. A pinned
certificate is compared byte by byte with that of the other end. One signed by its key, or by the authority
that signed it, is refused. docs/online.md has the commands that make the files.
"""

from __future__ import annotations

import os
import re
import ssl
from pathlib import Path
from typing import NoReturn

from probe_core.errors import UserError

SERVER_KEY, SERVER_CERTIFICATE = "server.key", "server.crt"
CLIENT_KEY, CLIENT_CERTIFICATE = "client.key", "client.crt"
AUTHORITY_CERTIFICATE = "ca.crt"
UNPINNED_CERTIFICATE = "it is another certificate than the one in this end's directory"
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


class PinningContext(ssl.SSLContext):
    """A context whose handshakes fail unless the other end presents the pinned certificate.

    Attributes:
        pinned: The certificate in the DER format; None to accept every certificate that is verified.
    """

    pinned: bytes | None = None

    def check_other_end(self, certificate: bytes | None) -> None:
        """Check the certificate of the other end after the handshake.

        Raises:
            ssl.SSLCertVerificationError: It is not the pinned one.
        """
        if self.pinned is not None and certificate != self.pinned:
            error = ssl.SSLCertVerificationError(1, UNPINNED_CERTIFICATE)
            error.verify_code, error.verify_message = 0, UNPINNED_CERTIFICATE
            raise error


class _PinningSocket(ssl.SSLSocket):
    def do_handshake(self, block: bool = False) -> None:
        super().do_handshake(block)
        if isinstance(self.context, PinningContext):
            self.context.check_other_end(self.getpeercert(binary_form=True))


class _PinningObject(ssl.SSLObject):
    def do_handshake(self) -> None:
        super().do_handshake()
        if isinstance(self.context, PinningContext):
            self.context.check_other_end(self.getpeercert(binary_form=True))


PinningContext.sslsocket_class = _PinningSocket
PinningContext.sslobject_class = _PinningObject


def create_receiver_context(directory: Path) -> ssl.SSLContext:
    """Return the context of a receiver with the certificates in a directory.

    Raises:
        UserError: A file is missing or wrong, or others can read the key.
    """
    context = PinningContext(ssl.PROTOCOL_TLS_SERVER)
    _harden(context)
    _load_own(context, directory / SERVER_KEY, directory / SERVER_CERTIFICATE)
    pinned, authority = directory / CLIENT_CERTIFICATE, directory / AUTHORITY_CERTIFICATE
    if pinned.exists() and authority.exists():
        raise UserError(
            f'"{directory}" holds both {pinned.name} and {authority.name}, so who is let in is unclear.',
            f"Keep {pinned.name} to let in one certificate, or {authority.name} for all that it signed.",
        )
    if pinned.exists() or authority.exists():
        context.verify_mode = ssl.CERT_REQUIRED
        _trust(context, pinned, authority)
    return context


def create_sender_context(directory: Path) -> ssl.SSLContext:
    """Return the context of a sender with the certificates in a directory.

    Raises:
        UserError: A file is missing or wrong, or others can read the key.
    """
    context = PinningContext(ssl.PROTOCOL_TLS_CLIENT)
    _harden(context)
    pinned, authority = directory / SERVER_CERTIFICATE, directory / AUTHORITY_CERTIFICATE
    context.check_hostname = not pinned.exists()  # a pinned certificate is accepted whatever name it has
    if pinned.exists() or authority.exists():
        _trust(context, pinned, authority)
    else:
        raise UserError(
            f'"{directory}" holds neither {SERVER_CERTIFICATE} nor {AUTHORITY_CERTIFICATE}, so the receiver cannot be '
            "recognized.",
            f"Copy the receiver's {SERVER_CERTIFICATE} there, or the {AUTHORITY_CERTIFICATE} that signed it.",
        )
    if (directory / CLIENT_KEY).exists() or (directory / CLIENT_CERTIFICATE).exists():
        _load_own(context, directory / CLIENT_KEY, directory / CLIENT_CERTIFICATE)
    return context


def is_mutual(context: ssl.SSLContext) -> bool:
    """Return True if a receiver's context asks for a certificate of the sender."""
    return context.verify_mode is ssl.CERT_REQUIRED


def format_connection_error(error: Exception) -> str:
    """Return a sentence on a failed connection or handshake, without a full stop."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLEOFError):
        return "the other end closed the connection during the TLS handshake; it may expect plain text"
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or str(error)).replace("_", " ").lower()
        if "wrong version number" in reason or "http request" in reason:
            return "the other end does not speak TLS"
        if "certificate required" in reason or "handshake failure" in reason:
            return f"the other end asks for a certificate: {CLIENT_KEY} and {CLIENT_CERTIFICATE} ({reason})"
        if "alert" in reason:
            return f"the other end does not accept this end's certificate or settings ({reason})"
        return f"TLS failed: {reason}"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError):
        return error.strerror or str(error) or type(error).__name__
    return str(error) or type(error).__name__


def _harden(context: ssl.SSLContext) -> None:
    """Allow TLS 1.2 and later only, without compression and renegotiation."""
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | getattr(ssl, "OP_NO_RENEGOTIATION", 0)
    context.set_ciphers("ECDHE+AESGCM:ECDHE+CHACHA20:DHE+AESGCM:DHE+CHACHA20")


def _load_own(context: ssl.SSLContext, key: Path, certificate: Path) -> None:
    for path in (key, certificate):
        if not path.is_file():
            raise UserError(
                f'"{path.parent}" holds no {path.name}.',
                f"Put {key.name} and {certificate.name} there; docs/online.md shows how to make them.",
            )
    if os.name == "posix" and (mode := key.stat().st_mode) & 0o077:
        raise UserError(
            f'The key "{key}" can be read or changed by other users (mode {mode & 0o777:o}).',
            f"Run: chmod 600 {key}",
        )
    try:
        context.load_cert_chain(certificate, key, password=lambda: _refuse_password(key))
    except ssl.SSLError as error:
        raise UserError(
            f'"{certificate}" and "{key}" are no certificate and its key: {format_connection_error(error)}.',
            "Make them again, as docs/online.md shows.",
        ) from None
    except OSError as error:
        raise UserError(
            f'"{error.filename or key}" cannot be read: {error.strerror or error}.', "Change its permissions."
        ) from None


def _refuse_password(key: Path) -> NoReturn:
    raise UserError(
        f'The key "{key}" is protected by a password, which nobody can type during a training.',
        f"Take the password away: openssl pkey -in {key} -out {key}.plain, and use that file.",
    )


def _trust(context: PinningContext, pinned: Path, authority: Path) -> None:
    """Accept the first certificate in ``pinned`` alone, or, without that file, those of the authority."""
    certificate = pinned if pinned.exists() else authority
    try:
        if certificate is authority:
            context.load_verify_locations(certificate)
            return
        leaf = _PEM.search(certificate.read_text("ascii", "replace"))
        if leaf is None:
            raise ValueError("there is no certificate")
        context.pinned = ssl.PEM_cert_to_DER_cert(leaf[0])
        context.load_verify_locations(cadata=context.pinned)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # trusted without the one that signed it
    except (ssl.SSLError, ValueError):
        raise UserError(
            f'"{certificate}" is no certificate in the PEM format.', "Copy it from the other machine again."
        ) from None
    except OSError as error:
        raise UserError(
            f'"{certificate}" cannot be read: {error.strerror or error}.', "Change its permissions."
        ) from None
