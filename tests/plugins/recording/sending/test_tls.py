"""Pinned certificates: only the certificate itself is accepted, whoever signed another one."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
from pathlib import Path

import pytest
from probe_recording.sending.tls import (
    UNPINNED_CERTIFICATE,
    create_receiver_context,
    create_sender_context,
    format_connection_error,
)

from probe_core.errors import UserError

VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)


def run(*command: str | Path) -> None:
    subprocess.run(command, check=True, capture_output=True)


def self_signed(directory: Path, name: str) -> None:
    """Make a key and a certificate by the commands of docs/online.md."""
    directory.mkdir(exist_ok=True)
    run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}",
        "-keyout", directory / f"{name}.key", "-out", directory / f"{name}.crt")  # fmt: skip
    (directory / f"{name}.key").chmod(0o600)


def signed_by(directory: Path, name: str, signer: Path, names: str = "") -> None:
    """Make a key and a certificate that ``signer``, a path without suffix, signs for some names."""
    directory.mkdir(exist_ok=True)
    request, extensions = directory / "request", directory / "extensions"
    extensions.write_text(f"subjectAltName={names}\n" if names else "")
    run("openssl", "req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN=signed-{name}",
        "-keyout", directory / f"{name}.key", "-out", request)  # fmt: skip
    run("openssl", "x509", "-req", "-in", request, "-CA", f"{signer}.crt", "-CAkey", f"{signer}.key",
        "-CAcreateserial", "-days", "2", "-extfile", extensions, "-out", directory / f"{name}.crt")  # fmt: skip
    (directory / f"{name}.key").chmod(0o600)
    request.unlink()


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the keys of receivers, of senders and of an authority."""
    home = tmp_path_factory.mktemp("keys")
    for place, name in (("right", "server"), ("right", "client"), ("authority", "ca"), ("other", "client")):
        self_signed(home / place, name)
    signed_by(home / "leaf", "server", home / "authority" / "ca")
    signed_by(home / "sibling", "server", home / "authority" / "ca")
    signed_by(home / "leaf", "client", home / "authority" / "ca")
    for place, names in (("named", "IP:192.0.2.1,DNS:receiver"), ("misnamed", "IP:192.0.2.2,DNS:other")):
        signed_by(home / place, "server", home / "authority" / "ca", names)
    signed_by(home / "forged", "server", home / "right" / "server")
    signed_by(home / "forged", "client", home / "right" / "client")
    for name in ("server", "client"):
        leaf, chain = home / "leaf" / f"{name}.crt", home / "authority" / "ca.crt"
        (home / f"{name}_chain.crt").write_bytes(leaf.read_bytes() + chain.read_bytes())
    return home


def directory(path: Path, **files: Path) -> Path:
    """Copy files to a new directory under the given names, in which an underscore stands for a dot."""
    path.mkdir()
    for name, file in files.items():
        shutil.copy(file, path / name.replace("_", "."))
    return path


def handshake(receiver: ssl.SSLContext, sender: ssl.SSLContext, version: ssl.TLSVersion) -> tuple[str, str]:
    """Return the sentences on the failures of receiver and sender, each empty if there was none."""
    receiver.maximum_version = sender.maximum_version = version
    sentences = ["", ""]
    ends = socket.socketpair()

    def serve() -> None:
        try:
            with receiver.wrap_socket(ends[0], server_side=True) as connection:
                connection.sendall(b"welcome")
        except OSError as error:
            sentences[0] = format_connection_error(error)
            ends[0].close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with sender.wrap_socket(ends[1], server_hostname="192.0.2.1") as connection:
            assert connection.recv(100) == b"welcome"
    except OSError as error:
        sentences[1] = format_connection_error(error)
    except AssertionError:
        sentences[1] = "closed"
    finally:
        ends[1].close()
        thread.join()
    return sentences[0], sentences[1]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("presented", "pinned", "is_accepted"),
    [("right", "right/server.crt", True), ("forged", "right/server.crt", False),
     ("leaf", "server_chain.crt", True), ("sibling", "server_chain.crt", False),
     ("leaf", "leaf/server.crt", True), ("sibling", "leaf/server.crt", False)],
)  # fmt: skip
def test_a_sender_accepts_the_pinned_certificate_alone(
    presented: str, pinned: str, is_accepted: bool, version: ssl.TLSVersion, keys: Path, tmp_path: Path
) -> None:
    receiver = directory(tmp_path / "receiver", server_key=keys / presented / "server.key",
                         server_crt=keys / presented / "server.crt")  # fmt: skip
    sender = directory(tmp_path / "sender", server_crt=keys / pinned)
    _, of_sender = handshake(create_receiver_context(receiver), create_sender_context(sender), version)
    assert bool(of_sender) is not is_accepted
    if presented == "forged":
        assert of_sender == f"the certificate is not accepted: {UNPINNED_CERTIFICATE}"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("presented", "pinned", "is_accepted"),
    [("right", "right/client.crt", True), ("forged", "right/client.crt", False),
     ("other", "right/client.crt", False), ("leaf", "client_chain.crt", True)],
)  # fmt: skip
def test_a_receiver_lets_in_the_pinned_certificate_alone(
    presented: str, pinned: str, is_accepted: bool, version: ssl.TLSVersion, keys: Path, tmp_path: Path
) -> None:
    receiver = directory(tmp_path / "receiver", server_key=keys / "right" / "server.key",
                         server_crt=keys / "right" / "server.crt", client_crt=keys / pinned)  # fmt: skip
    sender = directory(tmp_path / "sender", server_crt=keys / "right" / "server.crt",
                       client_key=keys / presented / "client.key",
                       client_crt=keys / presented / "client.crt")  # fmt: skip
    of_receiver, of_sender = handshake(create_receiver_context(receiver), create_sender_context(sender), version)
    assert bool(of_receiver) is not is_accepted and (is_accepted or of_sender)


def test_an_authority_next_to_a_pinned_certificate_is_refused(keys: Path, tmp_path: Path) -> None:
    both = directory(tmp_path / "receiver", server_key=keys / "right" / "server.key",
                     server_crt=keys / "right" / "server.crt", client_crt=keys / "right" / "client.crt",
                     ca_crt=keys / "authority" / "ca.crt")  # fmt: skip
    with pytest.raises(UserError, match=r"holds both client\.crt and ca\.crt"):
        create_receiver_context(both)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("presented", "trusted", "reason"),
    [("named", {"ca_crt": "authority/ca.crt"}, ""),
     ("misnamed", {"ca_crt": "authority/ca.crt"}, "IP address mismatch"),
     ("leaf", {"ca_crt": "authority/ca.crt"}, "IP address mismatch"),
     ("right", {"ca_crt": "authority/ca.crt"}, "self-signed certificate"),
     ("misnamed", {"server_crt": "misnamed/server.crt"}, ""),
     ("misnamed", {"server_crt": "misnamed/server.crt", "ca_crt": "authority/ca.crt"}, ""),
     ("named", {"server_crt": "misnamed/server.crt", "ca_crt": "authority/ca.crt"}, "")],
)  # fmt: skip
def test_a_sender_checks_the_name_of_the_host_unless_the_certificate_is_pinned(
    presented: str, trusted: dict[str, str], reason: str, version: ssl.TLSVersion, keys: Path, tmp_path: Path
) -> None:
    receiver = directory(tmp_path / "receiver", server_key=keys / presented / "server.key",
                         server_crt=keys / presented / "server.crt")  # fmt: skip
    sender = directory(tmp_path / "sender", **{name: keys / file for name, file in trusted.items()})
    _, of_sender = handshake(create_receiver_context(receiver), create_sender_context(sender), version)
    is_other = presented == "named" and "server_crt" in trusted
    assert bool(of_sender) is (bool(reason) or is_other) and reason in of_sender, of_sender
