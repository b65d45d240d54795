"""The examples of the page on configuration files, recorded as they stand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from support.runs.recording import recording
from test_pages import ROOT, blocks

PAGE = ROOT / "docs" / "configuration.md"


def list_output_shapes(records: dict[str, Any]) -> list[list[int]]:
    return [record["output"][0]["shape"] for record in records.values() if "output" in record]


def test_slice_of_the_page_records_the_last_token(tmp_path: Path) -> None:
    fields = {**json.loads(blocks(PAGE, "json")[0]), "dump_path": str(tmp_path / "run")}
    model = torch.nn.Sequential(torch.nn.Linear(4, 3))
    with recording(tmp_path / "run", **fields) as found:
        found.start(model)
        model(torch.ones(2, 512, 4))
        found.stop()
    shapes = list_output_shapes(found.records())
    assert shapes and all(shape == [2, 1, 3] for shape in shapes)


def test_scheduled_tokens_of_the_page_record_row_5(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 3))
    with recording(tmp_path / "run", level="mix", statistics={"request_id": "request-1"}) as found:
        batch = torch.arange(24.0).reshape(6, 4)
        exec(blocks(PAGE, "python")[0], {"debugger": found.debugger, "model": model})
        output = model(batch)
        found.stop()
    records = found.records()
    assert list_output_shapes(records) == [[1, 3], [1, 3]]
    assert records["Module.0.Linear.forward.0"]["output"][0]["Max"] == output[5].max().item()
