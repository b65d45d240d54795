"""A training of two ranks is judged while it runs; the rows are those of the commands on its recorded calls.

The ranks run on the stand-in device of ``standin_npu`` with three of its operators broken on the second one, and
share their gradients by gloo. The same training, recorded, is checked on that device and on the CPU.
"""

from __future__ import annotations

import csv
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
import torch
from probe_pytorch.precheck.rebuild import load_any
from probe_recording.api import leaf_of
from probe_recording.reading.tensors import open_tensors
from support import TESTS
from support.faults.planted_errors import ASSIGNED
from support.programs import preloaded
from support.programs.rank_processes import run_ranks
from support.receiving import certificate
from support.runs.receiving import Receiver, receiver

PROGRAM = TESTS / "support/programs/online_training.py"
FAULTS = "softmax,maximum,reciprocal"
RANKS, STEPS = (0, 1), (0, 1, 2)
SECONDS = 120
WAYS = ["tcp", pytest.param("tls", marks=pytest.mark.slow), pytest.param("shared", marks=pytest.mark.slow)]
RESULT, DETAILS = "api_precision_compare_result", "api_precision_compare_details"
Rows = list[dict[str, str]]


def rows_of(directory: Path, name: str, ending: str = "") -> Rows:
    """The rows of the one csv file of this name."""
    (path,) = directory.glob(f"{name}_*{ending}.csv")
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def train(out: Path, tensor: dict[str, Any]) -> dict[int, str]:
    """Run the training under a recorder; return what each rank prints of its parameters."""
    out.mkdir(exist_ok=True)
    config = {"task": "tensor", "level": "L1", "dump_path": str(out / "dump"), "rank": [], "step": []}
    (out / "config.json").write_text(json.dumps({**config, "tensor": {"data_mode": ["all"], **tensor}}))
    (out / "meeting").unlink(missing_ok=True)
    run_ranks([sys.executable, str(PROGRAM), "train", str(out / "config.json"), str(out / "meeting"), FAULTS],
              out, len(RANKS))  # fmt: skip
    logs = {rank: (out / f"rank{rank}.log").read_text() for rank in RANKS}
    return {rank: re.findall(r"^parameters (\S+)$", log, re.MULTILINE)[0] for rank, log in logs.items()}


class Offline(NamedTuple):
    """The recorded training, and the details of both devices."""

    home: Path
    parameters: dict[int, str]

    def dump(self, step: int, rank: int) -> Path:
        return self.home / f"dump/step{step}/rank{rank}/dump.json"

    def records(self, step: int, rank: int) -> dict[str, Any]:
        """Forward records by the names of their calls."""
        records = json.loads(self.dump(step, rank).read_text())["data"]
        return {key.removesuffix(".forward"): record for key, record in records.items()}

    def details(self, side: str, step: int, rank: int) -> Path:
        (path,) = (self.home / side / str(2 * step + rank)).glob("accuracy_checking_details_*.csv")
        return path


@pytest.fixture(scope="module")
def offline(tmp_path_factory: pytest.TempPathFactory) -> Offline:
    home = tmp_path_factory.mktemp("offline")
    found = Offline(home, train(home, {"data_mode": ["forward"]}))
    dumps = [str(found.dump(step, rank)) for step in STEPS for rank in RANKS]
    for device in ("npu", "cpu"):
        preloaded.run(
            [sys.executable, str(PROGRAM), "check", device, str(home / device), FAULTS, *dumps],
            env={**os.environ, "PYTHONPATH": str(TESTS)}, check=True, timeout=SECONDS,
        )  # fmt: skip
    return found


class Judged(NamedTuple):
    """A training that was judged while it ran."""

    out: Path
    first: str
    said: str
    parameters: dict[int, str]


@pytest.fixture(scope="module")
def online(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Judged]]:
    @cache
    def run(way: str) -> Judged:
        home = tmp_path_factory.mktemp(way)
        place = certificates(home) if way == "tls" else []
        if way == "shared":
            (home / "calls").mkdir()
            options = ["--watch", home / "calls"]
        else:
            options = ["--listen", "127.0.0.1:0", *place]
        with receiver(*options, "-o", home / "checked", "--lang", "zh", "--patience", SECONDS) as found:
            parameters = train(home, {"online_run_ut": True, "online_drain": SECONDS, **sender(way, home, found)})
            code, printed = found.end()
        said = "".join(found.said)
        assert code == 0, (printed, said)
        assert "PLAIN TEXT" not in said
        return Judged(home / "checked", printed.splitlines()[0], said, parameters)

    yield run


def certificates(home: Path) -> list[object]:
    """Make both ends' certificates by openssl; return the receiver's option."""
    server, client = certificate(home / "server"), certificate(home / "client", "client")
    (server / "client.crt").write_bytes((client / "client.crt").read_bytes())
    (client / "server.crt").write_bytes((server / "server.crt").read_bytes())
    return ["--tls", server]


def sender(way: str, home: Path, found: Receiver) -> dict[str, Any]:
    """The fields of the training's configuration that say where calls go."""
    if way == "shared":
        return {"nfs_path": str(home / "calls"), "host": "", "port": -1, "tls_path": ""}
    tls = str(home / "client") if way == "tls" else ""
    return {"nfs_path": "", "host": found.address[0], "port": found.address[1], "tls_path": tls}


def parties(name: str) -> int:
    """2 or 3, by the lists of the guide."""
    api = name.split(".", 1)[1].rpartition(".")[0]
    return 2 if any(api in ASSIGNED[each].split() for each in LISTED) else 3


LISTED = ("absolute_threshold", "binary_consistency", "dual_thousandth")


@pytest.mark.parametrize("way", WAYS)
def test_three_parties_give_the_rows_of_the_comparison_of_both_sides(
    way: str, offline: Offline, online: Any, probe: Any, tmp_path: Path
) -> None:
    judged: Judged = online(way)
    assert judged.parameters == offline.parameters  # to the bit
    seen = errors = 0
    for rank in RANKS:
        found = {name: rows_of(judged.out, name, f"_rank{rank}") for name in (RESULT, DETAILS)}
        for step in STEPS:
            out = tmp_path / f"{rank}{step}"
            sides = [offline.details(side, step, rank) for side in ("npu", "cpu")]
            assert probe("api-precision-compare", "-npu", sides[0], "-gpu", sides[1], "-o", out) == 0, probe.err
            for name in (RESULT, DETAILS):
                expected = {
                    row["API Name"]: row for row in rows_of(out, name) if parties(call_of(row["API Name"])) == 3
                }
                rows = [row for row in found[name] if row["步数"] == str(step)]
                assert {row["API Name"]: {**row, "步数": "", "会话": ""} for row in rows} == {
                    name: {**row, "步数": "", "会话": ""} for name, row in expected.items()
                }
                assert len(rows) == len(expected)
                seen += len(rows)
            errors += sum(row["Forward Test Success"] == "error" for row in rows_of(out, RESULT))
            assert {row["Backward Test Success"].strip() for row in rows_of(out, RESULT)} == {""}
    assert seen > 600 and errors


def call_of(name: str) -> str:
    """The name of a call from that of an output of it."""
    return re.sub(r"\.(forward|backward)\.output\.\d+$", "", name)


def test_the_details_are_those_that_the_command_writes(offline: Offline, probe: Any, tmp_path: Path) -> None:
    """The check of the recorded calls is that of run-ut, to the byte."""
    dump = offline.dump(0, 1)
    assert probe("run-ut", "-i", dump, "-d", "cpu", "-o", tmp_path) == 0, probe.err
    (details,) = tmp_path.glob("accuracy_checking_details_*.csv")
    assert details.read_bytes() == offline.details("cpu", 0, 1).read_bytes()


# -- two parties, by code of its own ---------------------------------------------------------------


class Sent(NamedTuple):
    """A recorded value: an array, or what is no tensor as it is."""

    value: Any
    dtype: str = ""


KERNELS: dict[str, Callable[..., Any]] = {
    "__add__": lambda x, y: x + y,
    "__mul__": lambda x, y: x * y,
    "__rmul__": lambda x, y: x * y,
    "mul": lambda x, y: x * y,
    "neg": lambda x: -x,
    "maximum": np.maximum,
    "masked_fill": lambda x, mask, value: np.where(mask, np.asarray(value, x.dtype), x),
    "transpose": np.swapaxes,
    "reshape": lambda x, *shape: x.reshape(shape),
    "flatten": lambda x, *dims: x.reshape(-1, x.shape[-1]) if dims else x.reshape(-1),
}
"""The APIs of two parties in the net, in numpy."""
ROUNDED = {"rsqrt": torch.rsqrt, "reciprocal": torch.reciprocal}
"""Those whose rounding in bfloat16 is that of torch's kernel for the number of elements."""
RTOL, SMALL, ATOL = {"float32": 1e-6, "bfloat16": 4e-3}, {"float32": 1e-6, "bfloat16": 1e-3}, {"float32": 1e-9, "bfloat16": 1e-5}  # fmt: skip
EPS = {"float32": float(np.finfo(np.float32).eps), "bfloat16": 2.0**-8}
NUMBERS = {"最大绝对误差": "max", "二进制一致错误率": "unequal", "相对误差错误率": "relative",
           "绝对误差错误率": "absolute", "inf/nan错误率": "infinite"}  # fmt: skip


def leaves(dump: Path, value: Any) -> list[Sent]:
    """The values of a recorded leaf or list of them."""
    if isinstance(value, list):
        return [leaf for item in value for leaf in leaves(dump, item)]
    if "data_name" not in value:
        return [Sent(value["value"])]
    dtype = value["dtype"].removeprefix("torch.")
    array = open_tensors(dump.parent / "dump_tensor_data", load_any)(leaf_of(value, ""))
    return [Sent(array.astype(np.float32) if dtype == "bfloat16" else array, dtype)]


def as_dtype(array: Any, dtype: str) -> Any:
    """An array rounded to a dtype, in float32 if numpy has none of it."""
    return array.astype(ml_dtypes.bfloat16).astype(np.float32) if dtype == "bfloat16" else array.astype(dtype)


def received(api: str, inputs: list[Any], dtype: str) -> Any:
    """Return what the receiver computes of the recorded inputs."""
    if api in ROUNDED:
        (x,) = inputs
        return ROUNDED[api](torch.from_numpy(x.copy()).to(getattr(torch, dtype))).float().numpy()
    return as_dtype(np.asarray(KERNELS[api](*inputs)), dtype)


def verdicts(sent: Any, own: Any, dtype: str, is_exact: bool) -> tuple[str, bool, dict[str, float]]:
    """The status by the first stage, True if the standard is kept, and the numbers."""
    unequal = float(np.mean((sent != own) & ~(np.isnan(sent) & np.isnan(own)))) if sent.size else 0.0
    if dtype not in EPS:
        return ("error" if unequal else "pass"), not unequal, {"unequal": unequal}
    wide, bench = sent.astype(np.float64), own.astype(np.float64)
    usual = np.isfinite(wide) & np.isfinite(bench)
    wide, bench = wide[usual], bench[usual]
    size = np.abs(bench)
    error = np.abs(wide - bench)
    numbers = {"max": float(error.max(initial=0.0))}
    relative = error / (size + EPS[dtype])
    if is_exact:
        numbers["unequal"] = unequal
        kept = not unequal
    else:
        small = size <= SMALL[dtype]
        rates = (
            float(np.mean(relative[~small] > RTOL[dtype])) * np.mean(~small) * wide.size / sent.size
            if (~small).any()
            else 0.0,
            float(np.mean(error[small] > ATOL[dtype])) if small.any() else 0.0,
        )
        kept = not any(rates)
    if (sent != own)[~usual].any():
        return "error", kept, numbers
    norms = np.linalg.norm(wide) * np.linalg.norm(bench)
    if sent.size > 1 and norms and float(wide @ bench) / norms <= 0.99:
        return "error", kept, numbers
    if numbers["max"] < 0.001:
        return "pass", kept, numbers

    def share(limit: float) -> bool:
        return bool(np.mean(relative < limit) > 1 - limit)

    first, second = (0.01, 0.001) if dtype == "bfloat16" else (0.001, 0.0001)
    return ("error" if not share(first) else "pass" if share(second) else "warning"), kept, numbers


@pytest.mark.parametrize("way", WAYS)
def test_two_parties_give_what_first_stage_and_standard_say(way: str, offline: Offline, online: Any) -> None:
    judged: Judged = online(way)
    apis: dict[str, set[str]] = {}
    for rank in RANKS:
        result = {
            (r["步数"], r["API name"]): r for r in rows_of(judged.out, "accuracy_checking_result", f"_rank{rank}")
        }
        details = {
            (r["步数"], r["API Name"]): r for r in rows_of(judged.out, "accuracy_checking_details", f"_rank{rank}")
        }
        expected = set()
        for step in STEPS:
            for name, record in offline.records(step, rank).items():
                if parties(name) == 3:
                    continue
                expected.add((str(step), name))
                api = name.split(".")[1]
                is_exact = api in ASSIGNED["binary_consistency"].split()
                dump = offline.dump(step, rank)
                ((sent, dtype),) = leaves(dump, record["output"])
                inputs = [leaf.value for leaf in leaves(dump, record["input_args"])]
                assert not record["input_kwargs"]
                own = received(api, inputs, dtype)
                assert own.shape == sent.shape, name
                status, kept, numbers = verdicts(sent, own, dtype, is_exact)
                row, detail = result[str(step), name], details[str(step), f"{name}.forward.output.0"]
                assert detail["Status"] == status, (rank, step, name)
                assert row["Forward Test Success"] == (status if kept else "error"), (rank, step, name)
                assert row["Backward Test Success"].strip() == ""
                for column, key in NUMBERS.items():
                    if key in numbers:
                        assert float(detail[column]) == pytest.approx(numbers[key], rel=1e-5, abs=1e-12), name
                if not kept:
                    assert "ERROR" in row["Message"] + detail["Message"] or status == "error"
                apis.setdefault(row["Forward Test Success"], set()).add(f"{rank} {api}")
        assert result.keys() == expected
    assert apis.keys() == {"pass", "error"}
    assert apis["error"] == {"1 maximum", "1 reciprocal"}
    assert len(apis["pass"]) > 18


@pytest.mark.parametrize("way", WAYS)
def test_the_broken_operator_is_the_first_line(way: str, offline: Offline, online: Any) -> None:
    judged: Judged = online(way)
    made = [name for step in STEPS for rank in RANKS for name in offline.records(step, rank)]
    run = sum(not name.startswith("Tensor.to.") for name in made)  # a copy is not run alone, but skipped
    wrong = [
        row["步数"] + " " + (row.get("API Name") or row["API name"])
        for name in (RESULT, "accuracy_checking_result")
        for rank in RANKS
        for row in rows_of(judged.out, name, f"_rank{rank}")
        if row["Forward Test Success"] == "error"
    ]
    assert {name.rpartition(".")[0].split(" ")[1] for name in wrong} == {
        "Functional.softmax", "Torch.maximum", "Torch.reciprocal",
    }  # fmt: skip
    assert judged.first == (
        f"probe: rank 1, step 0: Functional.softmax.0 is the first of {len(wrong)} calls in error; "
        f"{run} calls were judged; {len(made) - run} calls were skipped (reasons in the result file)"
    )
    (row,) = [
        row
        for row in rows_of(judged.out, RESULT, "_rank1")
        if f"{row['步数']} {row['API Name']}" == "0 Functional.softmax.0"
    ]
    assert row["Forward Test Success"] == "error" and "ERROR" in row["Message"]
