"""Certificates that are wrong, missing, expired or rotated: a sentence at both ends, and the training goes on."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from probe_online.settings import ReceptionPlace
from probe_recording.sending import transport
from probe_recording.sending.body import SentTensor
from probe_recording.sending.sender import Sender
from probe_recording.sending.tls import create_sender_context
from probe_recording.settings.destination import Destination
from support.receiving import certificate
from support.runs.faulty import Truth, all_is_known, check, trained, until
from support.runs.inprocess import receiving
from support.runs.receiving import Client
from support.runs.relaying import relay

from probe_core.errors import UserError


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts to connect follow each other at once."""
    monkeypatch.setattr(transport, "FIRST_PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(transport, "MAX_PAUSE_SECONDS", 0.1)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates: of two receivers, of two senders, and an expired one of each."""
    path = tmp_path_factory.mktemp("certificates")
    for name in ("one", "two"):
        certificate(path / name)
        certificate(path / f"client_{name}", "client")
    for folder, name in (("expired", "server"), ("client_expired", "client")):
        certificate(path / folder, name)
        expire(path / folder / f"{name}.crt", path / folder / f"{name}.key")
    return path


def expire(certificate: Path, key: Path) -> None:
    """Make a certificate again that ended yesterday."""
    home = certificate.parent
    (home / "index.txt").write_text("")
    (home / "ca.cnf").write_text(
        f"[ca]\ndefault_ca=d\n[d]\ndatabase={home}/index.txt\nnew_certs_dir={home}\nserial={home}/serial\n"
        "default_md=sha256\npolicy=p\nunique_subject=no\n[p]\ncommonName=supplied\n"
    )
    (home / "serial").write_text("01\n")
    request = ["openssl", "req", "-new", "-key", key, "-subj", "/CN=probe", "-out", home / "request"]
    sign = ["openssl", "ca", "-batch", "-config", home / "ca.cnf", "-selfsign", "-keyfile", key, "-in", home / "request",
            "-out", certificate, "-notext", "-startdate", "20200101000000Z", "-enddate", "20200102000000Z"]  # fmt: skip
    for command in (request, sign):
        subprocess.run([str(part) for part in command], check=True, capture_output=True)


def directory(path: Path, *files: Path) -> Path:
    """A directory with copies of files."""
    path.mkdir()
    for file in files:
        shutil.copy(file, path / file.name)
    return path


def tried(port: int, tls: Path | None, path: Path) -> Any:
    """Send one call from a sender with this directory of certificates; return its summary."""
    sender = Sender(Destination("127.0.0.1", port, tls, drain=0.7), 0, "pytorch", {})
    assert sender.outbox.reserve(8) is None
    sender.outbox.put(0, "Torch.relu.0.forward", {}, [SentTensor("x", "uint8", (8,), bytes(8))], 8)
    until(lambda: sender._transport.problem)
    return sender.finish(path)


CASES: dict[str, tuple[tuple[str, ...], tuple[str, ...], str, str]] = {
    # the receiver's files, the sender's, the sender's sentence, the receiver's sentence
    "expired": (("expired/server.key", "expired/server.crt"), ("expired/server.crt",),
                "the certificate is not accepted: certificate has expired", "does not accept this end's certificate"),
    "another": (("one/server.key", "one/server.crt"), ("two/server.crt",),
                "the certificate is not accepted: self-signed certificate", "does not accept this end's certificate"),
    "no client certificate": (("one/server.key", "one/server.crt", "client_one/client.crt"), ("one/server.crt",),
                              "certificate", "peer did not return a certificate"),
    "another client certificate": (("one/server.key", "one/server.crt", "client_one/client.crt"),
                                   ("one/server.crt", "client_two/client.key", "client_two/client.crt"),
                                   "certificate", "the certificate is not accepted: self-signed certificate"),
    "expired client certificate": (("one/server.key", "one/server.crt", "client_expired/client.crt"),
                                   ("one/server.crt", "client_expired/client.key", "client_expired/client.crt"),
                                   "certificate", "the certificate is not accepted: certificate has expired"),
    "plain text": (("one/server.key", "one/server.crt"), (), "TLS", "does not speak TLS"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_sentence_at_both_ends(case: str, made: Path, tmp_path: Path, capfd: Any) -> None:
    theirs, mine, says, hears = CASES[case]
    own = directory(tmp_path / "receiver", *(made / name for name in theirs))
    tls = directory(tmp_path / "sender", *(made / name for name in mine)) if mine else None
    with receiving(tmp_path / "out", place=ReceptionPlace("127.0.0.1", 0, own), patience=0.0) as end:
        summary = tried(end.address[1], tls, tmp_path)
        assert summary.waiting.total() == 1 and not summary.is_complete
        until(lambda: end.heard)
        release(end.address, made, own, tmp_path)
    said = capfd.readouterr().err
    (line,) = [line for line in said.splitlines() if "The training goes on" in line]
    assert says in line and "Traceback" not in said
    heard = [sentence for sentence in end.heard if "not let in" in sentence]
    assert any(hears in sentence for sentence in heard) and len(heard) <= 2, (end.heard, line)


def release(address: tuple[str, int], made: Path, own: Path, tmp_path: Path) -> None:
    """Let a receiver end: it gets other certificates, and somebody who has them says that there are no calls."""
    for name in ("server.key", "server.crt"):
        shutil.copy(made / "one" / name, own / name)
    (own / "client.crt").unlink(missing_ok=True)
    right = directory(tmp_path / "right", made / "one/server.crt")
    Client(address, context=create_sender_context(right)).end(0)


def test_a_missing_certificate_is_a_sentence_before_anything_begins(made: Path, tmp_path: Path) -> None:
    empty = directory(tmp_path / "empty")
    half = directory(tmp_path / "half", made / "one/server.key")
    with pytest.raises(UserError, match="holds neither"):
        Sender(Destination("127.0.0.1", 1, empty), 0, "pytorch", {})
    for wrong, missing in ((empty, "server.key"), (half, "server.crt")):
        with (
            pytest.raises(AssertionError, match=f"holds no {missing}"),
            receiving(tmp_path / f"out_{missing}", place=ReceptionPlace("127.0.0.1", 0, wrong)),
        ):
            pass


@pytest.mark.parametrize("is_mutual", [False, True])
def test_a_certificate_that_is_rotated_in_mid_run(
    is_mutual: bool, made: Path, truth: Truth, tmp_path: Path, capfd: Any
) -> None:
    own = directory(tmp_path / "receiver", made / "one/server.key", made / "one/server.crt")
    mine = directory(tmp_path / "sender", made / "one/server.crt")
    if is_mutual:
        shutil.copy(made / "client_one/client.crt", own)
        for name in ("client.key", "client.crt"):
            shutil.copy(made / "client_one" / name, mine)
    with (
        receiving(tmp_path / "out", place=ReceptionPlace("127.0.0.1", 0, own)) as end,
        relay(end.address, framed=False) as between,
    ):

        def rotate(step: int) -> None:
            if step == 0:  # at the receiver; the sender trusts the former one alone
                until(lambda: between.passed > 20_000)
                for name in ("server.key", "server.crt"):
                    shutil.copy(made / "two" / name, own / name)
                if is_mutual:
                    shutil.copy(made / "client_two/client.crt", own)
                between.cut()
                until(lambda: end.heard)
            if step == 1:  # at the sender, too
                shutil.copy(made / "two/server.crt", mine)
                if is_mutual:
                    for name in ("client.key", "client.crt"):
                        shutil.copy(made / "client_two" / name, mine)

        outcome, summary = trained(tmp_path / "run", rotate, port=between.port, tls_path=str(mine))
    told = check(truth, outcome, summary, tmp_path / "out")
    assert told["judged"] == truth.made and all_is_known(told), told
    said = capfd.readouterr().err
    assert "the certificate is not accepted: self-signed certificate" in said
    assert said.count("The training goes on") == said.count("are sent to") == 1
    assert "INCOMPLETE" not in end.verdict()
