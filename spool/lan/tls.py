"""TLS for both sides: which files, which rules, and checks at start that say what is wrong before anybody connects.

Folder `tls_path`: `server.key` and `server.crt` (receiver) or `client.key` and `client.crt` (sender), `ca.crt`, and `crl.pem`
where certificates have been revoked. Who shows a certificate that this CA has signed is let in: host names and key usages are
not compared, since certificates made for the ecosystem's tools carry one name and one usage for both sides.
"""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from pathlib import Path

from ..errors import ConfigError
from .passphrase import Passphrase
from .purpose import allow_any_purpose

# Forward secrecy and authenticated encryption only; TLS 1.3 has no others.
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
# A TLS 1.3 handshake takes two rounds.
_MOST_FLIGHTS = 10
# X509_V_ERR_… of openssl.
_EXPIRED, _NOT_YET, _REVOKED, _CRL_EXPIRED, _CRL_MISSING, _PURPOSE = 10, 9, 23, 12, 3, 26
_REMEDIES = {
    _EXPIRED: "it, or ca.crt, has expired; issue a new one",
    _NOT_YET: "it, or ca.crt, is not valid yet; check the clock of this host",
    _REVOKED: "it is revoked by crl.pem; issue a new one",
    _CRL_EXPIRED: "crl.pem has expired; make a new one with the CA",
    _CRL_MISSING: "crl.pem is not of the CA in ca.crt; make it with the same CA, or remove it if nothing is revoked",
}
_SIGNED = "it is not signed by the CA in ca.crt; use certificates of one CA on both hosts"


def server_context(folder: str | None, passphrase: Passphrase | None = None) -> ssl.SSLContext:
    """The receiver's context; `None` means the current folder. Raises ConfigError."""
    files = _checked("server", folder, passphrase)
    allow_any_purpose()
    return files.loaded(server=True)


def client_context(folder: str | None, passphrase: Passphrase | None = None) -> ssl.SSLContext:
    """The sender's context; `None` means the current folder. Raises ConfigError."""
    return _checked("client", folder, passphrase).loaded(server=False)


@dataclass(frozen=True)
class _Files:
    key: Path
    certificate: Path
    ca: Path
    crl: Path
    passphrase: Passphrase

    def verifier(self, *, server: bool) -> ssl.SSLContext:
        """A context that checks its peer, without a certificate of its own."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
        if server:
            # Nothing is resumed: each connection shows its certificate again, so a revoked one ends at the next.
            context.options |= ssl.OP_NO_TICKET
            context.num_tickets = 0
        context.set_ciphers(_CIPHERS)
        self._trust(context, self.ca)
        if self.crl.exists():
            self._trust(context, self.crl)
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        return context

    @staticmethod
    def _trust(context: ssl.SSLContext, path: Path) -> None:
        try:
            context.load_verify_locations(path)
        except (ssl.SSLError, OSError) as error:
            raise ConfigError(f"{path}: cannot be used ({error}); put the CA's own PEM file there") from error

    def loaded(self, *, server: bool) -> ssl.SSLContext:
        """A verifier with the own key and certificate."""
        context = self.verifier(server=server)
        try:
            context.load_cert_chain(self.certificate, self.key, self.passphrase.ask(self.key))
        except ssl.SSLError as error:
            if "KEY_VALUES_MISMATCH" in str(error):
                why = (
                    f"it does not belong to {self.certificate.name}; put the key and the certificate of one pair there"
                )
            elif self.passphrase.asked:
                why = f"it cannot be read with the passphrase from {self.passphrase.asked}; give the right one"
            else:
                why = f"it, or {self.certificate.name}, is no PEM file ({error}); make the pair again"
            raise ConfigError(f"{self.key}: {why}") from error
        return context


def _checked(role: str, given: str | None, passphrase: Passphrase | None) -> _Files:
    folder = Path("." if given is None else given).absolute()
    files = _Files(
        folder / f"{role}.key",
        folder / f"{role}.crt",
        folder / "ca.crt",
        folder / "crl.pem",
        passphrase or Passphrase(),
    )
    for path in (files.key, files.certificate, files.ca):
        _check_file(path, given)
    mode = files.key.stat().st_mode & 0o777
    if mode & 0o077:
        raise ConfigError(f"{files.key}: its mode is {mode:04o}; a key is for its owner alone: chmod 600 {files.key}")
    # The usage of a certificate may allow one role only, and hides everything else that is wrong in the other.
    code = _rehearse(files, own_is_server=True)
    if code == _PURPOSE:
        code = _rehearse(files, own_is_server=False)
    if code:
        raise ConfigError(f"{files.certificate}: {_REMEDIES.get(code, _SIGNED)}")
    return files


def _check_file(path: Path, given: str | None) -> None:
    remedy = "make a set with `spool-check certs`, set tls_path to its folder, or to an empty string for plain TCP"
    default = " (tls_path is not set: the current folder)" if given is None else ""
    if not path.is_file():
        raise ConfigError(f"{path}: missing{default}; TLS needs it: {remedy}")
    if not os.access(path, os.R_OK):
        raise ConfigError(f"{path}: not readable for this user; give it to the user that runs this process")


def _rehearse(files: _Files, *, own_is_server: bool) -> int:
    """A handshake in memory, in which the own certificate is checked as the peer will check it; the verifier's error or 0."""
    own, peer = files.loaded(server=own_is_server), files.verifier(server=not own_is_server)
    own.verify_mode = ssl.CERT_NONE
    if not own_is_server:
        peer.load_cert_chain(files.certificate, files.key, files.passphrase.ask(files.key))
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        own.wrap_bio(there, back, server_side=own_is_server),
        peer.wrap_bio(back, there, server_side=not own_is_server),
    ]
    for _ in range(_MOST_FLIGHTS):
        waiting = 0
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                waiting += 1
            except ssl.SSLCertVerificationError as error:
                return error.verify_code
            except ssl.SSLError as error:
                raise ConfigError(
                    f"{files.certificate}: it cannot be used for TLS: {error}; issue a new one"
                ) from error
        if not waiting:
            return 0
    raise ConfigError(f"{files.certificate}: it cannot be used for TLS: no handshake; issue a new one")


def explain(error: ssl.SSLError) -> str:
    """What a failed handshake means, in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    reason = error.reason or str(error)
    known = {
        "HTTP_REQUEST": "it speaks HTTP",
        "WRONG_VERSION_NUMBER": "it does not speak TLS; tls_path must be set, or empty, on both sides",
        "UNSUPPORTED_PROTOCOL": "it speaks TLS older than 1.2",
        "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it shows no certificate",
        "UNEXPECTED_EOF_WHILE_READING": "it closed the connection",
    }
    return known.get(reason, reason)
