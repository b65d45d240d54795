"""Small recorded runs for tests of the pre-check, ``probe`` in a process of its own, and its tables read back."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support import TESTS
from support.programs.interrupts import let_interrupts_in
from support.programs.preloaded import PreloadedPopen
from support.runs.recorded import scalar, tensor, write_run
from support.standins import standin_precheck

CHINESE = [
    *(
        "API Name",
        "Bench Dtype",
        "DEVICE Dtype",
        "Shape",
        "余弦相似度",
        "最大绝对误差",
        "双百指标",
        "双千指标",
        "双万指标",
    ),
    *(
        "二进制一致错误率",
        "误差均衡性",
        "均方根误差",
        "小值域错误占比",
        "相对误差最大值",
        "相对误差平均值",
        "inf/nan错误率",
    ),
    *(
        "相对误差错误率",
        "绝对误差错误率",
        "ULP误差最大值",
        "ULP误差平均值",
        "ULP误差大于阈值占比",
        "Status",
        "Message",
    ),
]
ENGLISH = [
    *(
        "API Name",
        "Bench Dtype",
        "DEVICE Dtype",
        "Shape",
        "Cosine Similarity",
        "Max Abs Error",
        "Dual Hundredth",
    ),
    *(
        "Dual Thousandth",
        "Dual Ten-Thousandth",
        "Binary Error Rate",
        "Error Balance",
        "RMSE",
        "Small Value Error Share",
    ),
    *(
        "Max Relative Error",
        "Mean Relative Error",
        "Inf/NaN Error Rate",
        "Relative Error Rate",
        "Absolute Error Rate",
    ),
    *("ULP Max", "ULP Mean", "ULP Share over Limit", "Status", "Message"),
]
RESULT = ["API name", "Forward Test Success", "Backward Test Success", "Message"]
STAMP = "20260101120000"
LONG = 60.0
"""Seconds within which whatever is waited for has come, or never will."""


def drawn(shape: list[int], low: float = -1.0, high: float = 1.0, dtype: str = "float32", **fields: Any) -> Any:
    """The description of a tensor of the range ``low`` to ``high``."""
    return tensor(shape, dtype=f"torch.{dtype}", Max=high, Min=low, **fields)


def backward(inputs: list[Any], outputs: list[Any]) -> dict[str, Any]:
    """The record of a backward call: gradients of the outputs, gradients of the arguments."""
    return {"input": inputs, "output": outputs}


def some_calls() -> dict[str, Any]:
    """One call of each standard of precision, of each sort of output, and three that are not run."""
    bf16 = "bfloat16"
    return {
        "Functional.relu.0.forward": call(drawn([4, 8], requires_grad=True)),
        "Torch.matmul.0.forward": call(drawn([8, 16], requires_grad=True), drawn([16, 4])),
        "Torch.add.0.forward": call(drawn([6]), drawn([6])),
        "Tensor.sum.0.forward": call(drawn([64], 0.0, 3.0, bf16), output=[drawn([], dtype=bf16)]),
        "Torch.argmax.0.forward": call(drawn([30])),
        "Functional.dropout.0.forward": call(drawn([200]), p=scalar(0.5), training=scalar(True)),
        "Functional.conv2d.0.forward": call(drawn([1, 2, 6, 6]), drawn([3, 2, 3, 3]), None),
        "Torch.linalg.inv.0.forward": call(drawn([3, 3])),
        "Torch.split.0.forward": call(drawn([6]), scalar(2)),
        "Torch.nosuch.0.forward": call(drawn([3])),
        "Distributed.all_reduce.0.forward": call(drawn([3])),
        "Torch.a.b.c.0.forward": call(drawn([3])),
        "Torch.matmul.0.backward": backward([drawn([8, 4])], [drawn([8, 16])]),
        "Functional.relu.0.backward": backward([drawn([4, 8])], [drawn([4, 8])]),
    }


def call(*inputs: Any, output: list[Any] | None = None, **keywords: Any) -> dict[str, Any]:
    """The record of a forward call."""
    return {"input_args": list(inputs), "input_kwargs": keywords, "output": output or []}


def standin_run(directory: Path, *names: str, with_backward: bool = False) -> Path:
    """A run of the framework of ``standin_precheck``."""
    path = write_run(directory, standin_precheck.records(*names, backward=with_backward))
    path.write_text(path.read_text().replace('"pytorch"', f'"{standin_precheck.FRAMEWORK}"'))
    return path


def config(path: Path, **fields: Any) -> Path:
    path.write_text(json.dumps({"task": "run_ut", "run_ut": fields}))
    return path


# -- what was written ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Written:
    """The one pair of files in a directory, read by Python's own csv reader."""

    result: Path
    details: Path

    @property
    def headers(self) -> tuple[list[str], list[str]]:
        return table(self.result)[0], table(self.details)[0]

    @property
    def rows(self) -> dict[str, list[str]]:
        """Forward, backward and message by API, blanks as empty texts; no API stands there twice."""
        return by_name(table(self.result)[1:])

    @property
    def outputs(self) -> dict[str, dict[str, str]]:
        """The rows of the details by name, each by header."""
        head, *rows = table(self.details)
        return {name: dict(zip(head[1:], cells)) for name, cells in by_name(rows).items()}

    @property
    def data(self) -> tuple[bytes, bytes]:
        return self.result.read_bytes(), self.details.read_bytes()


def written(directory: Path) -> Written:
    """The files in ``directory``, which holds no others."""
    details, result = sorted(directory.iterdir())
    assert details.name == result.name.replace("result", "details")
    return Written(result, details)


def table(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.reader(file))


def by_name(rows: list[list[str]]) -> dict[str, list[str]]:
    found = {row[0]: [cell.strip() for cell in row[1:]] for row in rows}
    assert len(found) == len(rows), "a row stands there twice"
    return found


# -- probe in a process of its own -----------------------------------------------------------------


def environment(site: Path) -> dict[str, str]:
    """The variables for ``probe`` with the stand-in, which is installed in ``site`` where it is not yet."""
    if not site.exists():
        standin_precheck.install(site)
    places = map(str, (site, TESTS, os.environ.get("PYTHONPATH", "")))
    path = os.pathsep.join(place for place in places if place)
    return {**os.environ, "PYTHONPATH": path, "PYTHONFAULTHANDLER": ""}


class Started:
    """``probe`` in a group of processes of its own, which Ctrl-C and ``kill`` are meant for."""

    def __init__(self, site: Path, *arguments: str | Path, **variables: str) -> None:
        self.process = PreloadedPopen(
            [sys.executable, "-m", "probe_core.cli", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**environment(site), **variables},
            start_new_session=True,
            preexec_fn=let_interrupts_in,
        )

    def wait(self) -> tuple[int, str, str]:
        """The exit code, and what was printed."""
        try:
            out, err = self.process.communicate(timeout=LONG)
        finally:
            self.kill()
        return self.process.returncode, out, err

    def interrupt(self) -> None:
        """Interrupt the whole group, like a terminal on Ctrl-C."""
        os.killpg(self.process.pid, signal.SIGINT)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop the parent while the block runs, however long that takes."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill the parent alone."""
        self.process.kill()
        self.process.communicate()


def until(true: Callable[[], Any], what: str) -> Any:
    """Wait until ``true`` gives something that is, and give it."""
    end = time.monotonic() + LONG
    while time.monotonic() < end:
        found = true()
        if found:
            return found
        time.sleep(0.005)
    raise AssertionError(f"it never came to this: {what}")
