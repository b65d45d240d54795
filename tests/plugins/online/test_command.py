"""The receiver's config.json: the directory of its files."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from support.probe import Probe
from support.runs.receiving import names_in, receiver, result_rows, send_all

from probe_core.terminal.exit_codes import EXIT_FINISHED, EXIT_USER_ERROR


def write_config(path: Path, **fields: Any) -> Path:
    """Write the config.json of a receiver at a free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    section = {"is_online": True, "nfs_path": "", "host": "127.0.0.1", "port": port, "rank_list": [0],
               "tls_path": "", "white_list": [], "black_list": [], "error_data_path": "./"}  # fmt: skip
    path.write_text(json.dumps({"task": "run_ut", **fields, "run_ut": section}))
    return path


@pytest.mark.parametrize("options", [(), ("-o", "elsewhere")])
def test_receiver_writes_to_the_dump_path_of_its_configuration(
    options: tuple[str, ...], frames: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = write_config(tmp_path / "config.json", dump_path=str(tmp_path / "checked"))
    with receiver("-config", config, "--lang", "en", *options) as found:
        send_all(found.address, frames[:2])
        assert found.end()[0] == EXIT_FINISHED
    out = tmp_path / (options[1] if options else "checked")
    assert len(names_in(result_rows(out))) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["config.json", out.name])


def test_receiver_refuses_a_dump_path_that_is_no_path(probe: Probe, tmp_path: Path) -> None:
    config = write_config(tmp_path / "config.json", dump_path=["checked"])
    assert probe("run-ut", "-d", "cpu", "-config", config) == EXIT_USER_ERROR
    assert "dump_path must be a path" in probe.err and 'For example "./checked"' in probe.err
