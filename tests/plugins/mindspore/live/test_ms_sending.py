"""A MindSpore training that sends its calls: what is sent equals what is recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")

from mindspore import Tensor, mint  # noqa: E402
from probe_recording.api import leaf_of  # noqa: E402
from probe_recording.sending.body import SentTensors  # noqa: E402
from support.on_mindspore.ms_recording import recording  # noqa: E402
from support.receiving import receiver  # noqa: E402


def program(found: Any) -> list[Any]:
    x = Tensor(np.arange(12, dtype=np.float32).reshape(3, 4))
    found.start()
    results = [mint.add(x, x), mint.matmul(x, x.T), mint.sum(x), mint.concat((x, x), dim=1)]
    half = x.astype(ms.bfloat16)
    results.append(mint.reshape(half, (4, 3)).float())
    results.append(x.add_(1))
    found.stop()
    found.step()
    return [result.asnumpy().tolist() for result in results]


def test_a_sent_call_is_what_the_recorder_writes(tmp_path: Path) -> None:
    with recording(tmp_path / "offline", task="tensor", level="L1") as found:
        expected = program(found)
    with receiver() as end:
        section = {"online_run_ut": True, "host": "127.0.0.1", "port": end.port}
        with recording(tmp_path / "online", task="tensor", level="L1", tensor=section) as found:
            assert program(found) == expected
    written = json.loads((tmp_path / "offline/step0/rank/dump.json").read_text())["data"]
    forward = [name for name in written if name.endswith(".forward")]
    assert end.names == forward and end.hellos[0]["framework"] == "mindspore"
    checked = 0
    for call, body in end.calls:
        tensors = SentTensors(body)
        for field in ("input_args", "output"):
            for sent, leaf in zip(call.fields[field], written[call.name][field]):
                if isinstance(leaf, dict) and "data_name" in leaf:
                    array = np.load(tmp_path / "offline/step0/rank/dump_tensor_data" / leaf["data_name"])
                    mine = tensors(leaf_of(sent, "0"))
                    assert mine.dtype == array.dtype and mine.shape == array.shape
                    assert mine.tobytes() == array.tobytes(), call.name
                    assert sent["Max"] is None
                    checked += 1
    assert checked > 10
    assert not list((tmp_path / "online").rglob("dump.json"))
