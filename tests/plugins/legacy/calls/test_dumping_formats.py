"""Files that probe writes, against those that the tools wrote of the same programs.

Names, shapes and dtypes are the same, and values within rounding. What differs is listed with its reason in
differences-legacy-calls.yaml, and must differ.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from support import DATA
from support.runs.older_calls import (
    branch,
    conv,
    hooks,  # noqa: F401
    load_weights,
    ptdbg,  # noqa: F401
    rows_of,
    step_of,
    step_of_conv,
)
from support.runs.older_dumps import dumps  # noqa: F401
from support.runs.older_net import Conv

KNOWN: dict[str, dict[str, Any]] = yaml.safe_load((DATA / "differences-legacy-calls.yaml").read_text("utf-8"))
CLOSE = {"rtol": 1e-5, "atol": 1e-6}
RANK = "ptdbg_dump_v2.3/rank0"


def listed(dump: str) -> set[str]:
    return {row for entry in KNOWN.values() if entry["dump"] == dump for row in entry["rows"]}


def differing(own: list[Any], theirs: list[Any], place: int) -> set[str]:
    """The names of the rows whose numbers at a place are not the same within rounding."""
    return {
        row[0]
        for row, other in zip(own, theirs)
        if not np.allclose(np.array(row[place], float), np.array(other[place], float), **CLOSE, equal_nan=True)
    }


@pytest.mark.parametrize(("dump", "make"), [("ptdbg23_conv_all", conv), ("ptdbg23_unmatched", branch)])
def test_a_file_of_ptdbg_is_that_of_the_tool(ptdbg: Any, dumps: Path, tmp_path: Path, dump: str, make: Any) -> None:
    wanted = dumps / dump / "bench" / RANK / "bench_dump"
    model, step = make(wanted), step_of(wanted)
    ptdbg.set_dump_path(tmp_path / "own.pkl")
    ptdbg.register_hook(model, ptdbg.acc_cmp_dump)
    ptdbg.set_dump_switch("ON")
    step(model)
    ptdbg.set_dump_switch("OFF")

    made = tmp_path / RANK / "own.pkl"
    own, theirs = rows_of(made), rows_of(wanted.with_suffix(".pkl"))
    assert [row[:5] for row in own] == [row[:5] for row in theirs]
    assert {path.name for path in made.with_suffix("").iterdir()} == {path.name for path in wanted.iterdir()}
    assert sorted(path.name for path in made.parent.iterdir()) == ["own", "own.pkl"]
    assert differing(own, theirs, 5) == listed(dump)
    for row in theirs:
        array = np.load(made.with_suffix("") / f"{row[0]}.npy")
        saved = np.load(wanted / f"{row[0]}.npy")
        assert (array.dtype, array.shape) == (saved.dtype, saved.shape)
        assert np.allclose(array, saved, **CLOSE) is (row[0] not in listed(dump)), row[0]


def test_a_file_of_hooks_is_that_of_the_tool(hooks: Any, dumps: Path, tmp_path: Path) -> None:
    theirs = rows_of(dumps / "hooks_rc3_conv/cpu.pkl")
    values: dict[str, list[Any]] = {}
    for name, numbers, _, shape in theirs:
        values.setdefault(name, []).append(np.array(numbers, np.float32).reshape(shape))

    def weights(name: str, call: int) -> tuple[Any, Any]:
        inputs = values[f"Functional_{name}_forward_input.1"], values[f"Functional_{name}_forward_input.2"]
        return inputs[0][call], inputs[1][call]

    model = Conv()
    load_weights(model, {"conv1": weights("conv2d", 0), "conv2": weights("conv2d", 1), "fc": weights("linear", 0)})
    step = step_of_conv(
        values["Functional_conv2d_forward_input.0"][0], values["Functional_nll_loss_backward_input.0"][0]
    )
    hooks.register_acc_cmp_hook(model)
    hooks.set_dump_path(tmp_path / "own.pkl")
    step(model)
    hooks._dumping.finish()

    own = rows_of(tmp_path / "own.pkl")
    assert [[row[0], *row[2:]] for row in own] == [[row[0], *row[2:]] for row in theirs]
    assert differing(own, theirs, 1) == listed("hooks_rc3_conv")
    assert [path.name for path in tmp_path.iterdir()] == ["own.pkl"]


def test_every_difference_has_its_reason() -> None:
    dumps = {"ptdbg23_conv_all", "ptdbg23_unmatched", "hooks_rc3_conv"}
    assert {entry["dump"] for entry in KNOWN.values()} <= dumps
    assert all(entry["why"].endswith(".") and entry["rows"] for entry in KNOWN.values())
