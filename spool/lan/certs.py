"""A CA, a server and a client for trials: what one does with openssl by hand, in one call. Needs `spool-check[lan]`."""

from __future__ import annotations

import datetime
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from ..errors import ConfigError

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError as error:
    raise ConfigError("certificates need the cryptography package: pip install 'spool-check[lan]'") from error

SET = ("ca.key", "ca.crt", "server.key", "server.crt", "client.key", "client.crt")
_BEFORE = datetime.timedelta(hours=1)


class Authority:
    """A CA that signs certificates for `spool-check` and makes its revocation list."""

    def __init__(self, name: str = "spool-check trial CA", *, days: float = 365) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(name)
        public = self._key.public_key()
        self.certificate = (
            _builder(subject, subject, public, days)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(authority=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .sign(self._key, hashes.SHA256())
        )

    def issue(self, name: str, *, days: float = 180) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
        """A key and its certificate, for either side; negative `days` have passed already."""
        key = ec.generate_private_key(ec.SECP256R1())
        usages = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        certificate = (
            _builder(_name(name), self.certificate.subject, key.public_key(), days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(authority=False), critical=True)
            .add_extension(usages, critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return key, certificate

    def revocation_list(self, revoked: Sequence[x509.Certificate], *, days: float = 30) -> bytes:
        """`crl.pem` with these certificates."""
        now = _now()
        builder = x509.CertificateRevocationListBuilder().issuer_name(self.certificate.subject)
        builder = builder.last_update(now - _BEFORE).next_update(now + datetime.timedelta(days=days))
        for certificate in revoked:
            entry = x509.RevokedCertificateBuilder().serial_number(certificate.serial_number)
            builder = builder.add_revoked_certificate(entry.revocation_date(now).build())
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def key_bytes(self, passphrase: str | None = None) -> bytes:
        """`ca.key`."""
        return key_bytes(self._key, passphrase)


def make_certificates(
    folder: str | os.PathLike[str], *, days: float = 180, passphrase: str | None = None, force: bool = False
) -> list[Path]:
    """Make `ca`, `server` and `client` pairs in a folder, every file 0600; the keys are encrypted if a passphrase is given.

    The receiver's host gets server.key, server.crt and ca.crt, the sender's client.key, client.crt and ca.crt; ca.key stays
    with whoever issues certificates. Raises ConfigError when a file is there already and `force` is not set.
    """
    root = Path(folder)
    there = [name for name in SET if (root / name).exists()]
    if there and not force:
        raise ConfigError(f"{root}: {there[0]} is there already; choose another folder, or overwrite with --force")
    authority = Authority(days=days)
    contents = {"ca.key": authority.key_bytes(passphrase), "ca.crt": certificate_bytes(authority.certificate)}
    for name in ("server", "client"):
        key, certificate = authority.issue(f"spool-check {name}", days=days)
        contents[f"{name}.key"] = key_bytes(key, passphrase)
        contents[f"{name}.crt"] = certificate_bytes(certificate)
    try:
        root.mkdir(mode=0o700, exist_ok=True)
        for name, data in contents.items():
            write_private(root / name, data)
    except OSError as error:
        raise ConfigError(f"{root}: {error.strerror}; choose a folder that this user may write to") from error
    return [root / name for name in SET]


def key_bytes(key: ec.EllipticCurvePrivateKey, passphrase: str | None = None) -> bytes:
    """A private key as PEM, encrypted if a passphrase is given."""
    protection: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase is not None:
        protection = serialization.BestAvailableEncryption(passphrase.encode())
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protection)


def certificate_bytes(certificate: x509.Certificate) -> bytes:
    """A certificate as PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def write_private(path: Path, data: bytes) -> None:
    """Put a file in place that nobody else could read at any moment."""
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
    os.replace(new, path)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: float
) -> x509.CertificateBuilder:
    end = _now() + datetime.timedelta(days=days)
    start = min(_now(), end) - _BEFORE
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    return builder.serial_number(x509.random_serial_number()).not_valid_before(start).not_valid_after(end)


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc)
