"""TLS: who is let in, what is said about certificates at start, and that both sides must agree to use it."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import ssl
import subprocess
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from spool_bundles import PLAIN, call, drain, info

from spool import ConfigError, SpoolUnavailable, open_spool
from spool.lan import Receiver, SenderLimits, SocketSpool
from spool.lan.certs import Authority, certificate_bytes, key_bytes, make_certificates, write_private
from spool.lan.passphrase import FD_VARIABLE, VARIABLE, Passphrase
from spool.lan.tls import client_context, server_context

Receive = Callable[..., Receiver]
SHORT = SenderLimits(connect=2.0)


def pair(folder: Path, role: str, authority: Authority, *, days: float = 30, passphrase: str | None = None) -> Path:
    """A folder with the files of one side."""
    folder.mkdir(exist_ok=True)
    key, certificate = authority.issue(role, days=days)
    write_private(folder / f"{role}.key", key_bytes(key, passphrase))
    write_private(folder / f"{role}.crt", certificate_bytes(certificate))
    write_private(folder / "ca.crt", certificate_bytes(authority.certificate))
    return folder


def refused(receiver: Receiver, tls_path: str) -> str:
    with (
        SocketSpool(receiver.url, tls_path=tls_path, limits=SHORT) as sender,
        pytest.raises(SpoolUnavailable) as caught,
    ):
        sender.open_session(info())
    return str(caught.value)


def knock(receiver: Receiver, context: ssl.SSLContext) -> None:
    """Connect, and stay until the receiver ends the connection; its log is complete then."""
    with (
        contextlib.suppress(OSError),
        socket.create_connection(receiver.address, timeout=5) as raw,
        context.wrap_socket(raw) as sock,
    ):
        while sock.recv(100):
            pass
    receiver.stop()


def test_a_client_of_another_ca_is_not_let_in(
    receive: Receive, certificates: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # Its own set is sound, and it would trust the receiver: only the receiver can refuse.
    other = pair(tmp_path / "other", "client", Authority())
    context = client_context(str(other))
    context.verify_mode = ssl.CERT_NONE
    receiver = receive(certificates)
    knock(receiver, context)
    assert "its certificate is not accepted" in caplog.text


def test_a_receiver_of_another_ca_is_not_trusted(receive: Receive, certificates: str, tmp_path: Path) -> None:
    other = pair(tmp_path / "other", "client", Authority())
    assert "its certificate is not accepted" in refused(receive(certificates), str(other))


def test_a_revoked_client_is_not_let_in(receive: Receive, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority = Authority()
    server = pair(tmp_path / "server", "server", authority)
    good, bad = (pair(tmp_path / name, "client", authority) for name in ("good", "bad"))
    from cryptography import x509

    revoked = x509.load_pem_x509_certificate((bad / "client.crt").read_bytes())
    write_private(server / "crl.pem", authority.revocation_list([revoked]))
    receiver = receive(str(server))
    refused(receiver, str(bad))
    assert "certificate revoked" in caplog.text
    with SocketSpool(receiver.url, tls_path=str(good)) as sender:
        session = sender.open_session(info())
        sender.publish(call())
        session.close("closed", {})


def test_a_client_whose_certificate_has_expired_is_not_let_in(
    receive: Receive, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority()
    server, client = pair(tmp_path / "server", "server", authority), pair(tmp_path / "client", "client", authority)
    receiver = receive(str(server))
    context = client_context(str(client))
    late = pair(tmp_path / "late", "client", authority, days=-1)
    context.load_cert_chain(late / "client.crt", late / "client.key")
    knock(receiver, context)
    assert "certificate has expired" in caplog.text


def test_a_session_stays_with_its_certificate(receive: Receive, tmp_path: Path) -> None:
    authority = Authority()
    server = pair(tmp_path / "server", "server", authority)
    first, second = (pair(tmp_path / name, "client", authority) for name in ("first", "second"))
    receiver = receive(str(server))
    for _ in range(2):
        with SocketSpool(receiver.url, tls_path=str(first)) as sender:
            sender.open_session(info())
        assert "opened with another certificate" in refused(receiver, str(second))
        receiver.stop()
        receiver = receive(str(server))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_old_tls_is_refused(
    receive: Receive, certificates: str, version: ssl.TLSVersion, caplog: pytest.LogCaptureFixture
) -> None:
    receiver = receive(certificates)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        # Security level 0, or the client itself would not offer it.
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = context.maximum_version = version
    with socket.create_connection(receiver.address, timeout=5) as raw, pytest.raises(ssl.SSLError):
        context.wrap_socket(raw)
    receiver.stop()
    assert "older than 1.2" in caplog.text


def test_a_client_without_a_certificate_is_not_let_in(
    receive: Receive, certificates: str, caplog: pytest.LogCaptureFixture
) -> None:
    receiver = receive(certificates)
    context = ssl.create_default_context(cafile=f"{certificates}/ca.crt")
    context.check_hostname = False
    knock(receiver, context)
    assert "it shows no certificate" in caplog.text


def test_a_plain_sender_at_a_tls_receiver(
    receive: Receive, certificates: str, caplog: pytest.LogCaptureFixture
) -> None:
    text = refused(receive(certificates), "")
    assert "TLS" in text
    assert "tls_path on both sides" in text
    assert "does not speak TLS" in caplog.text


def test_a_tls_sender_at_a_plain_receiver(
    receive: Receive, certificates: str, caplog: pytest.LogCaptureFixture
) -> None:
    text = refused(receive(""), certificates)
    assert "does not speak TLS" in text
    assert "TLS on one side only" in caplog.text


def change_mode(folder: Path) -> None:
    (folder / "server.key").chmod(0o644)


def other_key(folder: Path) -> None:
    shutil.copy(folder / "client.key", folder / "server.key")


def expire(folder: Path) -> None:
    pair(folder, "server", Authority(), days=-1)


def other_ca(folder: Path) -> None:
    write_private(folder / "ca.crt", certificate_bytes(Authority().certificate))


def revoke(folder: Path) -> None:
    authority = Authority()
    pair(folder, "server", authority)
    from cryptography import x509

    own = x509.load_pem_x509_certificate((folder / "server.crt").read_bytes())
    write_private(folder / "crl.pem", authority.revocation_list([own]))


def old_list(folder: Path) -> None:
    authority = Authority()
    pair(folder, "server", authority)
    write_private(folder / "crl.pem", authority.revocation_list([], days=-0.01))


def other_list(folder: Path) -> None:
    write_private(folder / "crl.pem", Authority("another").revocation_list([]))


CHECKS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no key": (lambda folder: (folder / "server.key").unlink(), r"server\.key: missing; .*spool-check certs"),
    "no CA": (lambda folder: (folder / "ca.crt").unlink(), r"ca\.crt: missing"),
    "a key for all": (change_mode, r"server\.key: its mode is 0644; .*chmod 600"),
    "a key of another certificate": (other_key, r"server\.key: it does not belong to server\.crt"),
    "expired": (expire, r"server\.crt: it, or ca\.crt, has expired; issue a new one"),
    "another CA": (other_ca, r"server\.crt: it is not signed by the CA in ca\.crt"),
    "revoked itself": (revoke, r"server\.crt: it is revoked by crl\.pem"),
    "an old list": (old_list, r"crl\.pem has expired"),
    "a list of another CA": (other_list, r"crl\.pem is not of the CA"),
    "a key that is none": (lambda folder: (folder / "server.key").write_text("x"), r"server\.key: .*no PEM file"),
    "a CA that is none": (lambda folder: (folder / "ca.crt").write_text("x"), r"ca\.crt: cannot be used"),
}


@pytest.mark.parametrize("name", CHECKS)
def test_what_is_wrong_is_said_at_start(name: str, certificates: str, tmp_path: Path) -> None:
    damage, text = CHECKS[name]
    folder = tmp_path / "set"
    shutil.copytree(certificates, folder)
    damage(folder)
    with pytest.raises(ConfigError, match=text):
        Receiver("127.0.0.1", 0, tmp_path / "spool", tls_path=str(folder))


def test_without_tls_path_the_current_folder_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        ConfigError, match=rf"{tmp_path}/client.key: missing \(tls_path is not set: the current folder\)"
    ):
        open_spool("tcp://127.0.0.1:1")
    make_certificates(tmp_path)
    open_spool("tcp://127.0.0.1:1").close()


def test_certificates_are_for_their_owner_alone_and_never_overwritten(tmp_path: Path) -> None:
    for path in make_certificates(tmp_path / "new"):
        assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(ConfigError, match=r"ca\.key is there already"):
        make_certificates(tmp_path / "new")
    make_certificates(tmp_path / "new", force=True)


@pytest.fixture
def encrypted(tmp_path: Path) -> str:
    folder = tmp_path / "encrypted"
    make_certificates(folder, passphrase="secret")
    return str(folder)


def test_a_passphrase_from_the_environment(encrypted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "secret")
    server_context(encrypted)
    monkeypatch.setenv(VARIABLE, "wrong")
    with pytest.raises(ConfigError, match=rf"cannot be read with the passphrase from {VARIABLE}") as caught:
        client_context(encrypted)
    assert "wrong" not in str(caught.value)


def test_a_passphrase_from_a_file_descriptor(encrypted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read_end, write_end = os.pipe()
    os.write(write_end, b"secret\n")
    os.close(write_end)
    monkeypatch.setenv(FD_VARIABLE, str(read_end))
    client_context(encrypted)
    os.close(read_end)
    monkeypatch.setenv(FD_VARIABLE, "999")
    with pytest.raises(ConfigError, match=r"999.*give the number of an open descriptor"):
        client_context(encrypted)


def test_a_passphrase_that_nobody_can_give(encrypted: str) -> None:
    with pytest.raises(ConfigError, match=rf"encrypted and nobody is there to ask; set {VARIABLE}"):
        server_context(encrypted)


def test_a_passphrase_at_the_prompt(encrypted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    asked: list[str] = []
    monkeypatch.setattr("getpass.getpass", lambda text: asked.append(text) or "secret")
    client_context(encrypted)
    assert len(asked) == 1, "asked once, although the key is loaded twice"


# Extensions as the ecosystem's recipe writes them; `-extensions` decides whether openssl takes them up.
_CA_EXTENSIONS = "[v3_ca]\nbasicConstraints=critical,CA:true\nkeyUsage=critical,keyCertSign,cRLSign\n"
_EXTENSIONS = """[v3]
basicConstraints=CA:FALSE
keyUsage=critical,digitalSignature,keyEncipherment
extendedKeyUsage=serverAuth
"""


@pytest.mark.parametrize("extended", [False, True], ids=["without extensions", "serverAuth for both"])
def test_certificates_of_the_ecosystems_recipe(receive: Receive, tmp_path: Path, extended: bool) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("the openssl program is not installed")

    def openssl(words: str) -> None:
        subprocess.run(["openssl", *words.split()], cwd=tmp_path, check=True, capture_output=True)

    (tmp_path / "ca.ext").write_text(_CA_EXTENSIONS)
    (tmp_path / "leaf.ext").write_text(_EXTENSIONS)
    sign = "x509 -req -days 9 -passin pass:ca"
    openssl("req -new -newkey rsa:2048 -passout pass:ca -subj /CN=*ca.com/C=CN -keyout ca.key -out ca.csr")
    openssl(f"{sign} -in ca.csr -signkey ca.key -out ca.crt -extensions v3_ca -extfile ca.ext")
    for role in ("server", "client"):
        openssl(f"genrsa -aes256 -passout pass:{role}_word -out {role}.key 2048")
        openssl(f"req -new -key {role}.key -passin pass:{role}_word -subj /CN=*example.com/C=CN -out {role}.csr")
        openssl(
            f"{sign} -CA ca.crt -CAkey ca.key -CAcreateserial -in {role}.csr -out {role}.crt -extfile leaf.ext"
            + (" -extensions v3" if extended else "")
        )
    word = Passphrase("server_word")
    receiver = Receiver("127.0.0.1", 0, tmp_path / "spool", tls_path=str(tmp_path), passphrase=word, options=PLAIN)
    with receiver, SocketSpool(receiver.url, tls_path=str(tmp_path), passphrase=Passphrase("client_word")) as sender:
        session = sender.open_session(info())
        sender.publish(call())
        session.close("closed", {})
    with open_spool(tmp_path / "spool", options=PLAIN) as spool:
        assert len(drain(spool)) == 1


def test_nobody_renegotiates(certificates: str) -> None:
    for context in (server_context(certificates), client_context(certificates)):
        assert context.options & ssl.OP_NO_RENEGOTIATION
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2
        assert context.verify_mode is ssl.CERT_REQUIRED
        names = [cipher["name"] for cipher in context.get_ciphers()]
        assert all("GCM" in name or "CHACHA20" in name for name in names), names
