"""Policies chosen with --policy, parameters of metrics and formats, and a third party's whole set at work."""

from __future__ import annotations

import csv
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.runs.recording import Recording
from torch import nn

from probe_core.plugins.manager import Manager
from probe_core.plugins.specs import MetricSpec


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.5)
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, sign: float) -> torch.Tensor:
        return torch.relu(self.drop(self.linear(x)) * sign)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two runs of a net that differ in a sign behind a dropout with other masks."""
    base = tmp_path_factory.mktemp("policies")
    for name, sign, seed in (("golden", 1.0, 1), ("target", -1.0, 2)):
        torch.manual_seed(0)
        model, x = Net(), torch.linspace(-1, 1, 32).reshape(4, 8)
        recording = Recording(base / name, task="tensor", level="L1", store="files")
        torch.manual_seed(seed)
        recording.start(model)
        model(x, sign)
        recording.stop()
        recording.step()
        recording.finish()
    return base / "target" / "step0", base / "golden" / "step0"


def rows(directory: Path) -> list[dict[str, str]]:
    (path,) = directory.glob("compare_result*.csv")
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


LABEL = "Accuracy Reached or Not"


def test_a_third_partys_metric_policy_judge_and_reporter(pair: Any, probe: Any, tmp_path: Path) -> None:
    code = probe("compare", *pair, "-o", tmp_path, "--policy", "few_flips:share=0.1", "--format",
                 "csv,markdown:bold=yes", "--fail-on", "error")  # fmt: skip
    assert code == 1, probe.err
    found = {row["NPU Name"]: row for row in rows(tmp_path)}
    flipped = found["Tensor.__mul__.0.forward.output.0"]
    assert float(flipped["Sign flips"]) > 0.1 and flipped[LABEL] == "many"
    assert "Signs flip: " in flipped["Err_message"]
    assert {row[LABEL] for row in found.values()} <= {"many", "few", ""}
    dropped = [name for name in found if name.startswith("Functional.dropout") and "output" in name]
    assert dropped and not any(name in probe.out for name in dropped)  # what the judge skips is no suspect
    (markdown,) = tmp_path.glob("*.md")
    lines = markdown.read_text("utf-8").splitlines()
    assert lines[0].startswith("| **NPU Name** |") and len(lines) == len(found) + 2


def test_the_first_policy_judges_and_further_ones_get_columns(pair: Any, probe: Any, tmp_path: Path) -> None:
    assert probe("compare", *pair, "-o", tmp_path / "a", "--policy", "accuracy,few_flips", "--format", "csv") == 0
    assert probe("compare", *pair, "-o", tmp_path / "b", "--format", "csv") == 0
    both, plain = rows(tmp_path / "a"), rows(tmp_path / "b")
    assert list(both[0]) == [*plain[0], "Sign flips", "few_flips"]
    for row, before in zip(both, plain, strict=True):
        assert {key: row[key] for key in before} == before
        assert row["few_flips"] == ("" if row["Sign flips"] in ("unsupported", "N/A") else
                                    "many" if float(row["Sign flips"]) > 0 else "few")  # fmt: skip


def test_a_column_says_which_rows_differ_beyond_rounding(pair: Any, probe: Any, tmp_path: Path) -> None:
    """Other than by the rule of the table, which is in the column before it."""
    asked = ("--format", "csv", "--policy", "statistics,accuracy,first_difference")
    assert probe("compare", *pair, "-o", tmp_path, *asked) == 0
    found = rows(tmp_path)
    labels = {(row["Accuracy Reached or Not"], row["first_difference"]) for row in found}
    assert {("Yes", "agrees"), ("No", "differs")} <= labels
    assert {label for _, label in labels} <= {"differs", "agrees", ""}
    assert probe("compare", *pair, "-o", tmp_path / "alone", "--format", "csv", "--policy", asked[-1][20:]) == 0
    alone = [row["Accuracy Reached or Not"] for row in rows(tmp_path / "alone")]
    assert alone == [row["first_difference"] for row in found]


def test_a_policy_for_other_runs(pair: Any, probe: Any, tmp_path: Path) -> None:
    assert probe("compare", *pair, "-o", tmp_path, "--policy", "statistics") == 2
    assert 'The policy "statistics" judges runs that hold statistics, and these hold tensor' in probe.err
    assert probe("compare", *pair, "-o", tmp_path, "--policy", "nosuch") == 2
    assert 'no policy called "nosuch"' in probe.err and "few_flips" in probe.err
    assert probe("compare", *pair, "-o", tmp_path, "--policy", ",") == 2
    assert "--policy names no policy." in probe.err
    assert not list(tmp_path.iterdir())


def test_a_policy_that_fails_is_blamed(pair: Any, probe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError("no flips")

    monkeypatch.setattr("probe_sample.few_flips.FewFlips.judge", fail)
    assert probe("compare", *pair, "-o", tmp_path, "--policy", "few_flips") == 2
    assert 'The policy "few_flips" of probe-sample 1.0 failed: ZeroDivisionError: no flips' in probe.err
    assert not [path for path in tmp_path.iterdir() if path.suffix == ".xlsx"]


def test_a_judge_that_fails_is_blamed_once_and_the_rest_goes_on(
    pair: Any, probe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise SystemExit(3)

    monkeypatch.setattr("probe_sample.masks.Masks.judge", fail)
    assert probe("compare", *pair, "-o", tmp_path, "--format", "csv") == 0
    assert probe.out.count('The judge "masks" of probe-sample 1.0 failed') == 1
    assert "It does not change any verdict from there on." in probe.out and rows(tmp_path)


def test_the_limit_of_a_metric(pair: Any, probe: Any, tmp_path: Path) -> None:
    options = [word for limit in (0, 4, 1e9) for word in ("--metric", f"ulp:limit={limit:g}")]
    assert probe("compare", *pair, "-o", tmp_path, "--format", "csv", "--metric", "ulp", *options) == 0, probe.err
    found = [row for row in rows(tmp_path) if row["ulp: ULP max"] not in ("unsupported", "N/A")]
    shares = [name for name in found[0] if "share over limit" in name]
    assert shares == [
        "ulp: ULP share over limit",
        *(f"ulp:limit={n}: ULP share over limit" for n in ("0", "4", "1e+09")),
    ]
    outputs = {row["NPU Name"]: row for row in found}
    row = outputs["Tensor.__mul__.0.forward.output.0"]
    target, golden = (torch.load(side / "rank" / "dump_tensor_data" / f"{row['NPU Name']}.pt") for side in pair)
    steps = ulps(target.detach().numpy(), golden.detach().numpy())
    for name, limit in zip(shares[1:], (0, 4, 1e9), strict=True):
        assert float(row[name]) == pytest.approx(np.mean(steps > limit), abs=1e-12)


def ulps(target: np.ndarray, golden: np.ndarray) -> np.ndarray:
    """Distances of float32 numbers among all float32 numbers."""
    places = [side.astype(np.float32).view(np.int32).astype(np.int64) for side in (target, golden)]
    ordered = [np.where(place < 0, -(2**31) - place, place) for place in places]
    return np.abs(ordered[0] - ordered[1])


@pytest.mark.parametrize(
    "asked, said",
    [
        ("ulp:limits=4", 'The metric "ulp" has no parameter "limits".'),
        ("ulp:limit=much", 'The metric "ulp": limit must be a number, not "much".'),
        ("ulp:limit", '"limit" in "ulp:limit" is not a parameter.'),
        ("ulp:limit=4:limit=5", '"ulp:limit=4:limit=5" gives limit twice.'),
        ("cosine:eps=1", 'The metric "cosine" has no parameter "eps".'),
    ],
)
def test_parameters_that_there_are_not(asked: str, said: str, pair: Any, probe: Any, tmp_path: Path) -> None:
    assert probe("compare", *pair, "-o", tmp_path, "--metric", asked) == 2
    assert said in probe.err and not list(tmp_path.iterdir())


def test_a_csv_that_excel_knows(pair: Any, probe: Any, tmp_path: Path) -> None:
    for name, form in (("plain", "csv"), ("marked", "csv:bom=true")):
        assert probe("compare", *pair, "-o", tmp_path / name, "--format", form) == 0, probe.err
    plain, marked = (next((tmp_path / name).glob("*.csv")).read_bytes() for name in ("plain", "marked"))
    assert marked == b"\xef\xbb\xbf" + plain


def test_a_bound_description_is_the_same_but_for_its_values() -> None:
    manager = Manager()
    assert manager.find("metrics", "ulp:limit=4", MetricSpec).values == {"limit": 4.0}
    assert manager.find("metrics", "ulp", MetricSpec).values == {}


def test_where_nobody_looks_for_suspects(
    pair: Any, probe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the plugin that names suspects, "no suspects" does not stand alone."""
    monkeypatch.setenv("PROBE_PLUGINS", "pytorch,metrics,reporters")
    assert probe("compare", *pair, "-o", tmp_path, "--format", "csv") == 0
    installed = f"probe-diagnosis {metadata.version('probe-diagnosis')}"
    note = f'note: there is no verdict. The finder "suspects" comes with {installed}, which '
    assert f"{note}PROBE_PLUGINS leaves out. Add diagnosis to PROBE_PLUGINS." in probe.out
