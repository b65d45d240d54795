"""TLS of the receiver: who has the right certificate is let in, all others are told and named."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import pytest
from probe_recording import FrameKind, sender_context
from support.probe import Probe
from support.runs.receiving import Client, receiver, send_all

from probe_core.cli.main import FINISHED, MISTAKE


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
            Client(found.address, context=sender_context(stranger))
        with pytest.raises((OSError, EOFError)):
            Client(found.address)
        ended = send_all(found.address, frames[:4], context=sender_context(sender))
        assert ended.kind is FrameKind.ENDED
        code, printed = found.end()
    assert code == FINISHED, found.said
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
    assert probe("run-ut", "-d", "cpu", "--listen", "0.0.0.0:0", "-o", tmp_path) == MISTAKE
    assert "plain text" in probe.err and "--insecure" in probe.err
    key = directories[0] / "server.key"
    key.chmod(0o644)
    try:
        code = probe(
            "run-ut", "-d", "cpu", "--listen", "127.0.0.1:0", "--tls", directories[0], "-o", tmp_path
        )
    finally:
        key.chmod(0o600)
    assert code == MISTAKE
    assert "can be read or changed by other users" in probe.err
