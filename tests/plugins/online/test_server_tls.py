"""TLS of the receiver: who has the right certificate is let in, all others are told and named."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import pytest
from probe_recording.sending.message import FrameKind
from probe_recording.sending.tls import create_sender_context
from support.probe import Probe
from support.runs.receiving import Client, receiver, send_all

from probe_core.terminal.exit_codes import EXIT_FINISHED, EXIT_USER_ERROR


def certificate(directory: Path, name: str) -> None:
    """Make a key and a certificate signed by itself, as the guide's commands do."""
    directory.mkdir(exist_ok=True)
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        f"/CN={name}",
    ]
    files = ["-keyout", directory / f"{name}.key", "-out", directory / f"{name}.crt"]
    subprocess.run([*command, *files], check=True, capture_output=True)
    (directory / f"{name}.key").chmod(0o600)


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Return the directories of a receiver, of its sender, and of a stranger."""
    home = tmp_path_factory.mktemp("tls")
    own, sender, stranger = (home / name for name in ("receiver", "sender", "stranger"))
    for directory, name in ((own, "server"), (sender, "client"), (stranger, "client")):
        certificate(directory, name)
    (own / "client.crt").write_bytes((sender / "client.crt").read_bytes())
    for directory in (sender, stranger):
        (directory / "server.crt").write_bytes((own / "server.crt").read_bytes())
    return own, sender, stranger


def test_only_the_right_certificate_is_let_in(
    frames: list[bytes], directories: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    own, sender, stranger = directories
    with receiver("--listen", "127.0.0.1:0", "--tls", own, "-o", tmp_path, "--lang", "en") as found:
        with pytest.raises((OSError, EOFError)):
            Client(found.address, context=create_sender_context(stranger))
        with pytest.raises((OSError, EOFError)):
            Client(found.address)
        ended = send_all(found.address, frames[:4], context=create_sender_context(sender))
        assert ended.kind is FrameKind.ENDED
        code, printed = found.end()
    assert code == EXIT_FINISHED, found.said
    assert "no call of 4 judged is in error" in printed.splitlines()[0]
    said = "".join(found.said)
    assert "127.0.0.1 was not let in: the certificate is not accepted" in said
    assert "does not speak TLS" in said
    assert "PLAIN TEXT" not in said
    assert ssl.HAS_TLSv1_3


def test_plain_text_beyond_this_machine_needs_consent_and_open_keys_are_refused(
    directories: tuple[Path, Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    probe = Probe(capsys)
    assert probe("run-ut", "-d", "cpu", "--listen", "0.0.0.0:0", "-o", tmp_path) == EXIT_USER_ERROR
    assert "plain text" in probe.err and "--insecure" in probe.err
    key = directories[0] / "server.key"
    key.chmod(0o644)
    try:
        code = probe("run-ut", "-d", "cpu", "--listen", "127.0.0.1:0", "--tls", directories[0], "-o", tmp_path)
    finally:
        key.chmod(0o600)
    assert code == EXIT_USER_ERROR
    assert "can be read or changed by other users" in probe.err


def signed(directory: Path, name: str, signer: Path) -> None:
    """Make a key, and a certificate file with the chain up to ``signer``, a path without suffix."""
    directory.mkdir()
    request, leaf = directory / "request", directory / f"{name}.crt"
    commands = [
        ["req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", directory / f"{name}.key",
         "-out", request],
        ["x509", "-req", "-in", request, "-CA", f"{signer}.crt", "-CAkey", f"{signer}.key", "-CAcreateserial",
         "-days", "2", "-out", leaf],
    ]  # fmt: skip
    for command in commands:
        subprocess.run(["openssl", *map(str, command)], check=True, capture_output=True)
    leaf.write_bytes(leaf.read_bytes() + Path(f"{signer}.crt").read_bytes())
    (directory / f"{name}.key").chmod(0o600)


def test_receiver_lets_in_the_pinned_leaf_of_a_chain_alone(frames: list[bytes], tmp_path: Path) -> None:
    """Both ends use chains of one authority; other leaves of it, and what a leaf signed, are refused."""
    certificate(tmp_path / "authority", "ca")
    authority = tmp_path / "authority" / "ca"
    own, sender = tmp_path / "receiver", tmp_path / "sender"
    signed(own, "server", authority)
    signed(sender, "client", authority)
    signed(tmp_path / "sibling", "client", authority)
    signed(tmp_path / "forged", "client", sender / "client")
    signed(tmp_path / "impostor", "server", authority)
    (own / "client.crt").write_bytes((sender / "client.crt").read_bytes())
    for directory in (sender, tmp_path / "sibling", tmp_path / "forged"):
        (directory / "server.crt").write_bytes((own / "server.crt").read_bytes())
    with receiver("--listen", "127.0.0.1:0", "--tls", own, "-o", tmp_path / "out", "--lang", "en") as found:
        for stranger in ("sibling", "forged"):
            with pytest.raises((OSError, EOFError)):
                Client(found.address, context=create_sender_context(tmp_path / stranger))
        misled = tmp_path / "misled"
        misled.mkdir()
        for name in ("client.key", "client.crt"):
            (misled / name).write_bytes((sender / name).read_bytes())
            (misled / name).chmod(0o600)
        (misled / "server.crt").write_bytes((tmp_path / "impostor" / "server.crt").read_bytes())
        with pytest.raises(ssl.SSLCertVerificationError):
            Client(found.address, context=create_sender_context(misled))
        send_all(found.address, frames[:4], context=create_sender_context(sender))
        code, printed = found.end()
    assert code == EXIT_FINISHED, found.said
    assert "no call of 4 judged is in error" in printed.splitlines()[0]
    assert "127.0.0.1 was not let in: the certificate is not accepted" in "".join(found.said)
