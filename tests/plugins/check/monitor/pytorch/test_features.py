"""Features of attention and linear layers, the update of Adam, and conversions."""

from __future__ import annotations

import math
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest
import torch
from probe_check import csv2db, csv2tensorboard_by_step
from probe_check.monitor.conversion import DATABASE_FILE
from probe_check.monitor.pytorch.features import compute_attention_features, compute_linear_features
from probe_check.monitor.pytorch.measurement import resolve
from probe_check.monitor.pytorch.parameters import Moments, compute_sign_agreement
from support.runs.monitors import run_of, train

from probe_core.errors import UserError


def numbers(measured: Any) -> list[float]:
    resolve([measured])
    return [float(value) for value in measured.values]


def test_attention_features_are_those_of_causal_rows() -> None:
    query, key = torch.randn(2, 6, 1, 3, 4).unbind(0)  # s, b, h, d
    entropies, largest = [], []
    for row in range(6):
        scores = [float(query[row, 0, 0] @ key[column, 0, 0]) / 2 for column in range(row + 1)]
        weights = [math.exp(score) for score in scores]
        shares = [weight / sum(weights) for weight in weights]
        entropies.append(-sum(share * math.log(share) for share in shares))
        largest.append(max(shares))
    expected = [sum(entropies) / 6, sum(largest) / 6]
    assert numbers(compute_attention_features(query, key, "s,b,h,d")) == pytest.approx(expected, rel=1e-5)
    swapped = compute_attention_features(query.transpose(0, 1), key.transpose(0, 1), "b,s,h,d")
    assert numbers(swapped) == pytest.approx(expected, rel=1e-5)
    assert all(map(math.isnan, numbers(compute_attention_features(query[0], key[0], "s,b,h,d"))))


def test_linear_features_are_stable_rank_and_spectral_norm() -> None:
    before = torch.get_rng_state()
    left, right = torch.tensor([[3.0], [4.0]]), torch.tensor([[1.0, 2.0, 2.0]])
    assert numbers(compute_linear_features(left @ right)) == pytest.approx([1.0, 15.0], rel=1e-5)
    assert numbers(compute_linear_features(torch.zeros(3, 2))) == [0.0, 0.0]
    assert torch.equal(torch.get_rng_state(), before)


def test_the_update_of_adam_is_that_of_torch() -> None:
    parameter = torch.nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.Adam([parameter], lr=1.0)
    parameter.grad = torch.tensor([1.0, -2.0, 0.5])
    optimizer.step()
    state = optimizer.state[parameter]
    moments = Moments(state["exp_avg"], state["exp_avg_sq"], float(state["step"]), (0.9, 0.999), 1e-8)
    pair = moments.compute_update_and_ratio()
    assert pair is not None
    torch.testing.assert_close(-pair[0], parameter.detach())
    torch.testing.assert_close(pair[1], torch.tensor([1.0, -1.0, 1.0]))


def test_sign_agreement_counts_zeros_as_half() -> None:
    gradient, moment = torch.tensor([1.0, -1.0, 0.0, 2.0]), torch.tensor([3.0, 1.0, 1.0, 1.0])
    assert float(compute_sign_agreement(gradient, moment)) == (1 + 0 + 0.5 + 1) / 4
    assert float(compute_sign_agreement(torch.zeros(0), torch.zeros(0))) == 1.0


FIELDS = {"wg_distribution": True, "xy_distribution": True, "ops": ["norm", "max"]}


def test_csv_files_become_tables_of_sqlite(tmp_path: Path) -> None:
    train(tmp_path / "run", steps=3, **FIELDS)
    path = csv2db(tmp_path / "run", step_partition=2, output_dirpath=tmp_path / "out")
    assert path == tmp_path / "out" / DATABASE_FILE
    with closing(sqlite3.connect(path)) as database:
        metrics = dict(database.execute("SELECT metric_name, metric_id FROM monitoring_metrics"))
        assert metrics.keys() == {"actv", "actv_grad", "grad_reduced", "grad_unreduced"}
        table = f"metric_{metrics['grad_reduced']}_step_2_3"
        found = list(database.execute(f"SELECT * FROM {table} NATURAL JOIN monitoring_targets"))
        assert len(found) == 6 and {row[1] for row in found} == {2}
        assert dict(database.execute("SELECT * FROM global_stats"))["max_step"] == 2


def test_wrong_arguments_of_conversions_are_refused(tmp_path: Path) -> None:
    train(tmp_path / "run", **FIELDS)
    wrong: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((tmp_path / "missing",), {}),
        ((tmp_path / "run",), {"time_start": "yesterday"}),
        ((tmp_path / "run",), {"time_start": "Jan01_00-00-00", "time_end": "Jan01_00-00-01"}),
        ((tmp_path / "run",), {"data_type_list": ["grads"]}),
        ((tmp_path / "run",), {"step_partition": 0}),
    ]
    for arguments, keywords in wrong:
        with pytest.raises(UserError):
            csv2db(*arguments, **keywords)


class Writer:
    """A stand-in for the writer of TensorBoard."""

    written: ClassVar[dict[str, list[tuple[str, float, int]]]] = {}
    histograms: ClassVar[list[tuple[str, int]]] = []

    def __init__(self, directory: str) -> None:
        self.place = Path(directory).name
        self.written.setdefault(self.place, [])

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        self.written[self.place].append((tag, value, step))

    def add_histogram(self, tag: str, values: torch.Tensor, step: int) -> None:
        self.histograms.append((tag, step))

    def close(self) -> None: ...


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> type[Writer]:
    module = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Writer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    Writer.written, Writer.histograms = {}, []
    return Writer


def test_tensorboard_receives_tags_and_distributions(tmp_path: Path, writer: type[Writer]) -> None:
    train(tmp_path / "run", format="tensorboard", ur_distribution=True, steps=2, **FIELDS)
    (scalars,) = writer.written.values()
    assert {("0:0.weight/rank0/post_grad_norm", 1), ("0:0.input:0/rank0/actv_max", 0)} <= {
        (tag, step) for tag, _, step in scalars
    }
    assert ("0:0.weight/rank0/adam_update", 1) in writer.histograms
    assert not list(run_of(tmp_path / "run").glob("*.csv"))


def test_csv_files_become_events_of_tensorboard(tmp_path: Path, writer: type[Writer]) -> None:
    train(tmp_path / "run", steps=2, **FIELDS)
    output = csv2tensorboard_by_step(tmp_path / "run", data_type_list=["actv"], output_dirpath=tmp_path / "o")
    assert output == tmp_path / "o" and list(writer.written) == ["actv"]
    assert {("vp0:0.input:micro0/norm", 0), ("vp0:0.input:micro0/max", 1)} <= {
        (tag, step) for tag, _, step in writer.written["actv"]
    }
