"""run_ut beside what mindstudio-probe 8.3.3 wrote of the same runs, its device replaced by the CPU.

Numbers that are rounding depend on the processor; held here are the rows, dtypes, shapes, error rates, cosines and
statuses. Where msprobe is wrong, the row stands in ``DIFFERENT`` with the reason.
"""

from __future__ import annotations

import csv
import io
import zipfile
from typing import Any

import pytest
from support import DATA

from probe_core.cli.main import run

OUTPUT_IS_THE_ARGUMENT = "an API that gives nothing back is judged by what it wrote; msprobe skips it"
NAN_ON_BOTH_SIDES = "nan and inf at the same places agree"
OVERFLOWS = "inf where the reference is beyond the dtype of the device agrees"
NO_ELEMENTS = "nothing to compare is no error"
COMPLEX = "complex numbers are not supported, which is no error"
ROUNDED_LIKE_AUTOCAST = "float32 arguments are rounded for the reference as autocast rounds them (defect 26)"
DIFFERENT: dict[str, dict[str, str]] = {
    "tensor_L1_edge": {
        "Tensor.__setitem__.0.forward.output.0": OUTPUT_IS_THE_ARGUMENT,
        "Tensor.__setitem__.1.forward.output.0": OUTPUT_IS_THE_ARGUMENT,
        "Torch.abs.0.forward.output.0": NAN_ON_BOTH_SIDES,
        "Torch.abs.1.forward.output.0": NAN_ON_BOTH_SIDES,
        "Torch.abs.2.forward.output.0": NAN_ON_BOTH_SIDES,
        "Torch.full.0.forward.output.0": NAN_ON_BOTH_SIDES,
        "Torch.mul.2.forward.output.0": OVERFLOWS,
        "Torch.add.0.forward.output.0": COMPLEX,
        "Torch.exp.2.forward.output.0": NO_ELEMENTS,
        "Torch.exp.1.forward.output.0": NO_ELEMENTS,
        "Torch.abs.3.forward.output.0": NAN_ON_BOTH_SIDES,
        "Torch.full.1.forward.output.0": NAN_ON_BOTH_SIDES,
    },
    "tensor_L1_fuzzy": {},
    "tensor_L1_datamap": {},
    "tensor_L1_mlp_bf16": {
        name: ROUNDED_LIKE_AUTOCAST
        for name in (
            "Functional.conv2d.0.forward.output.0",
            "Functional.conv2d.0.backward.output.1",
            "Functional.conv2d.0.backward.output.2",
            "Functional.linear.0.forward.output.0",
            "Functional.linear.0.backward.output.1",
            "Functional.linear.0.backward.output.2",
            "Functional.linear.1.backward.output.1",
            "Functional.linear.1.backward.output.2",
            "Functional.cross_entropy.0.forward.output.0",
        )
    },
}
ADDED = {
    "tensor_L1_mlp_bf16": {
        "Functional.batch_norm.0.forward.output.1",
        "Functional.batch_norm.0.forward.output.2",
    }
}
"""Rows that msprobe does not have: the running statistics that the call writes."""


def rows(data: bytes) -> dict[str, dict[str, str]]:
    return {row["API Name"]: row for row in csv.DictReader(io.StringIO(data.decode("utf-8-sig")))}


@pytest.fixture(scope="module", params=DIFFERENT)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The name of a run, msprobe's details and ours."""
    name, home = request.param, tmp_path_factory.mktemp("msprobe")
    with zipfile.ZipFile(DATA / "runs-8.3.3.zip") as archive:
        archive.extractall(home, [n for n in archive.namelist() if n.startswith(f"{name}/v8.3.3/npu_dump/")])
    with zipfile.ZipFile(DATA / "precheck-8.3.3.zip") as archive:
        theirs = rows(archive.read(f"{name}/details.csv"))
    command = [
        "run_ut",
        "-api_info",
        str(home / name),
        "-o",
        str(home / "out"),
        "-d",
        "cpu",
        "--standard",
        "8.3",
    ]
    assert run(command) == 0
    (details,) = (home / "out").glob("accuracy_checking_details_*.csv")
    return name, theirs, rows(details.read_bytes())


def test_rows_and_headers_are_those_of_msprobe(both: Any) -> None:
    name, theirs, ours = both
    assert set(ours) - set(theirs) == ADDED.get(name, set())
    assert not set(theirs) - set(ours)
    assert list(next(iter(ours.values()))) == list(next(iter(theirs.values())))


def test_what_is_judged_agrees(both: Any) -> None:
    name, theirs, ours = both
    for row, expected in theirs.items():
        if row in DIFFERENT[name]:
            continue
        found = ours[row]
        for column in ("Bench Dtype", "DEVICE Dtype", "Shape"):
            assert found[column].strip() == expected[column].strip(), (row, column)
        for column in ("二进制一致错误率", "inf/nan错误率"):
            if expected[column].strip():  # the rate of inf and nan is there for more standards than msprobe's
                assert float(found[column]) == float(expected[column]), (row, column)
        assert found["Status"].lower() == expected["Status"].lower(), row
        if expected["余弦相似度"].strip():
            assert float(found["余弦相似度"]) == pytest.approx(float(expected["余弦相似度"]), abs=1e-4), row


def test_rows_differ_where_msprobe_is_wrong(both: Any) -> None:
    name, theirs, ours = both
    columns = ("Status", "DEVICE Dtype")
    for row, why in DIFFERENT[name].items():
        found = [ours[row][c].lower() for c in columns]
        assert [theirs[row][c].lower() for c in columns] != found, (row, why)
        allowed = {"skip"} if why in (NO_ELEMENTS, COMPLEX) else {"pass", "warning"}
        if why == ROUNDED_LIKE_AUTOCAST and row.partition(".0.")[2].startswith("backward"):
            allowed.add("error")  # gradients of a few roundings in 16 bits, more or fewer of a kernel's
        assert found[0] in allowed, (row, why)
