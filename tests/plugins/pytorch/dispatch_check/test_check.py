"""The whole check: wrong operators are named first, right ones raise nothing, and the program goes on."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from probe_precheck.model import FORWARD
from probe_pytorch import DispatchCheck
from probe_pytorch.dispatch_check.check import WrongOperator
from probe_pytorch.dispatch_check.findings import OperatorDifferenceKind
from probe_pytorch.dispatch_check.operators import SkipReason
from support.faults import wrong_kernels as kernels
from torch import nn
from torch.nn import functional as F

from probe_core.errors import UserError


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(8, 16), nn.Linear(16, 8), nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Block(), Block()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)


def step(net: nn.Module) -> None:
    net(torch.randn(4, 8)).square().mean().backward()


def rows(path: Path | None) -> list[dict[str, str]]:
    assert path is not None
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


WRONG_FORWARD = ("gelu", kernels.tanh_gelu, kernels.exact_gelu)
WRONG_BACKWARD = ("gelu_backward", kernels.halved_gelu_backward, kernels.exact_gelu_backward)


def test_a_wrong_kernel_of_the_forward_is_named_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with kernels.wrong_kernel(*WRONG_FORWARD), DispatchCheck(tmp_path) as check:
        step(Net())
    first = check.findings[0]
    assert (first.name, first.operator, first.phase) == ("Aten.gelu.0", "aten.gelu.default", FORWARD)
    assert (first.origin.module, first.origin.module_class) == ("layers.0", "Block")
    assert Path(first.origin.file).name == "test_check.py"
    assert (
        first.difference.kind is OperatorDifferenceKind.ROUNDING
        and first.difference.error > 10 * first.difference.rounding
    )
    assert {finding.name for finding in check.findings} == {"Aten.gelu.0", "Aten.gelu.1"}
    assert check.counts.wrong == 2 and check.counts.wrong_operators == {"aten.gelu.default": 2}
    line = capsys.readouterr().err.splitlines()[0]
    assert line.startswith("dispatch check: Aten.gelu.0 (forward), in layers.0 (Block) at test_check.py, line ")
    assert "relative error" in line and "rounding explains" in line
    status = {row["API name"]: row["Forward Test Success"] for row in rows(check.result)}
    assert {name for name, value in status.items() if value == "error"} <= {"Aten.gelu.0", "Aten.gelu.1"}


def test_a_wrong_kernel_of_the_backward_is_named_with_its_forward(tmp_path: Path) -> None:
    with kernels.wrong_kernel(*WRONG_BACKWARD), DispatchCheck(tmp_path) as check:
        step(Net())
    first = check.findings[0]
    assert (first.name, first.phase, first.forward) == ("Aten.gelu_backward.0", "backward", "Aten.gelu.1")
    assert first.origin.module == "layers.1"  # the last layer comes first in the backward
    assert {finding.operator for finding in check.findings} == {"aten.gelu_backward.default"}
    (row,) = (row for row in rows(check.result) if row["API name"] == "Aten.gelu_backward.0")
    assert row["Forward Test Success"].strip() == "" and row["Backward Test Success"].strip()
    names = {row["API Name"] for row in rows(check.details)}
    assert "Aten.gelu_backward.0.backward.output.0" in names and "Aten.gelu.0.forward.output.0" in names


def test_recomputed_operators_are_named_by_the_line_that_computes_them(tmp_path: Path) -> None:
    from torch.utils.checkpoint import checkpoint

    net = Net()
    with kernels.wrong_kernel(*WRONG_FORWARD), DispatchCheck(tmp_path) as check:
        x = torch.randn(4, 8, requires_grad=True)
        checkpoint(net.layers[0], x, use_reentrant=False).sum().backward()
    forward, recomputed = check.findings
    assert (forward.phase, recomputed.phase) == ("forward", "backward")
    assert recomputed.origin == forward.origin and recomputed.origin.module_class == "Block"


def mlp() -> tuple[nn.Module, Callable[[nn.Module], torch.Tensor]]:
    return nn.Sequential(
        nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 1)
    ), lambda net: net(torch.randn(4, 8).to(next(net.parameters()).dtype)).float().mean()


def convolutions() -> tuple[nn.Module, Callable[[nn.Module], torch.Tensor]]:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    return net, lambda net: net(torch.randn(2, 3, 8, 8).to(next(net.parameters()).dtype)).float().mean()


def attention() -> tuple[nn.Module, Callable[[nn.Module], torch.Tensor]]:
    def loss(net: nn.Module) -> torch.Tensor:
        x = net(torch.randn(2, 2, 6, 8).to(next(net.parameters()).dtype))
        return F.scaled_dot_product_attention(x, x, x, is_causal=True).float().square().mean()

    return nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8)), loss


def language() -> tuple[nn.Module, Callable[[nn.Module], torch.Tensor]]:
    net = nn.Sequential(nn.Embedding(20, 8), nn.GELU(), nn.Linear(8, 20))
    words = torch.randint(20, (3, 5))
    return net, lambda net: F.cross_entropy(net(words).flatten(0, 1).float(), words.flatten())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("model", [mlp, convolutions, attention, language])
def test_right_operators_raise_nothing(
    model: Callable[[], tuple[nn.Module, Callable[[nn.Module], torch.Tensor]]],
    dtype: torch.dtype,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    net, loss = model()
    net.to(dtype)
    try:
        loss(net).backward()
    except RuntimeError as error:  # torch 2.1 has few kernels of float16 for the CPU
        pytest.skip(str(error))
    optimizer = torch.optim.AdamW(
        net.parameters(), lr=1e-2, eps=1e-3
    )  # float16 rounds smaller eps to 0, and gelu drops nan
    with DispatchCheck(tmp_path) as check:
        for _ in range(2):
            optimizer.zero_grad()
            loss(net).backward()
            optimizer.step()
    assert check.findings == () and check.counts.wrong == 0 and check.counts.compared > 20
    for reason in (
        SkipReason.FAILED,
        SkipReason.NOT_COMPUTED,
        SkipReason.MEMORY,
        SkipReason.ALIASED,
        SkipReason.NO_CPU_KERNEL,
    ):
        assert not check.counts.count_skipped(reason), (reason, check.counts.skipped)
    assert f"All {check.counts.compared} compared calls agree with the CPU." in capsys.readouterr().err
    assert len(rows(check.result)) == check.counts.compared


def test_files_have_the_columns_of_the_pre_check(tmp_path: Path) -> None:
    net, x = Net(), torch.randn(4, 8)
    with DispatchCheck(tmp_path) as check:
        net(x)
    assert check.result is not None and check.details is not None
    assert check.result.name.startswith("accuracy_checking_result_")
    assert list(rows(check.result)[0]) == [
        "API name",
        "Forward Test Success",
        "Backward Test Success",
        "Message",
    ]
    header = list(rows(check.details)[0])
    assert header[:6] == ["API Name", "Bench Dtype", "DEVICE Dtype", "Shape", "余弦相似度", "最大绝对误差"]
    assert header[-2:] == ["Status", "Message"]
    assert [row["API name"] for row in rows(check.result)][:3] == [
        "Aten.native_layer_norm.0", "Aten.addmm.0", "Aten.gelu.0",
    ]  # fmt: skip


# -- arguments -------------------------------------------------------------------------------------


def test_listed_operators_are_not_compared(tmp_path: Path) -> None:
    path = tmp_path / "skip.yaml"
    path.write_text("skip:\n  - aten.gelu\n  - addmm.default\n")
    for number, skip in enumerate((str(path), ["aten::gelu", "aten.addmm.default"])):
        with kernels.wrong_kernel(*WRONG_FORWARD), DispatchCheck(tmp_path / str(number), skip=skip) as check:
            step(Net())
        assert check.findings == ()
        assert check.counts.skipped[SkipReason.LISTED, "aten.gelu.default"] == 2
        assert check.counts.skipped[SkipReason.LISTED, "aten.addmm.default"] == 4


def test_operators_of_other_devices_are_not_compared(tmp_path: Path) -> None:
    with DispatchCheck(tmp_path, device="meta") as check:
        step(Net())
    assert check.counts.compared == 0 and check.counts.count_skipped(SkipReason.DEVICE) > 10


def test_a_call_that_needs_more_than_the_memory_is_not_compared(tmp_path: Path) -> None:
    with DispatchCheck(tmp_path, memory="1MiB") as check:
        x = torch.randn(200, 200)
        x @ x  # 0.96 MB of arguments, 0.48 MB of results
        torch.randn(400, 400).sum()
        torch.ones(400, 400)
    assert check.counts.skipped[SkipReason.MEMORY, "aten.sum.default"] == 1
    assert check.counts.skipped[SkipReason.MEMORY, "aten.ones.default"] == 1
    assert check.counts.operators == {"aten.mm.default": 1}


def test_on_error_raise_raises_at_the_first_wrong_call(tmp_path: Path) -> None:
    check = DispatchCheck(tmp_path, on_error="raise")
    named = pytest.raises(WrongOperator, match=r"Aten\.gelu\.0 \(forward\)")
    with kernels.wrong_kernel(*WRONG_FORWARD), named, check:
        step(Net())
    assert check.counts.wrong == 1
    assert [row["API name"] for row in rows(check.result)][-1] == "Aten.gelu.0"


# -- what goes wrong -------------------------------------------------------------------------------


def test_an_error_of_the_program_ends_the_check_and_is_raised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), DispatchCheck(tmp_path) as check:
        torch.ones(2, 2) @ torch.ones(2, 2)
        torch.ones(2, 3) @ torch.ones(2, 3)
    assert check.counts.operators["aten.mm.default"] == 1
    assert "Traceback" not in capsys.readouterr().err
    torch.ones(2) + 1  # the mode is gone
    assert check.counts.operators["aten.add.Tensor"] == 0


def test_an_error_of_the_check_does_not_end_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("broken")

    monkeypatch.setattr("probe_pytorch.dispatch_check.comparison.CallComparer.compare", broken)
    with DispatchCheck(tmp_path) as check:
        total = (torch.ones(2) + 1).sum()
    assert total == 4
    assert check.counts.count_skipped(SkipReason.FAILED) == 3
    assert "the first error: aten.ones.default: KeyError: 'broken'" in capsys.readouterr().err


def test_rows_that_cannot_be_written_do_not_end_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise UserError("The disk is full.", "Free some space.")

    monkeypatch.setattr("probe_precheck.results.CheckFiles.append", full)
    with kernels.wrong_kernel(*WRONG_FORWARD), DispatchCheck(tmp_path) as check:
        step(Net())
    assert check.counts.wrong == 2
    assert "dispatch check: The disk is full. The check goes on without writing rows." in capsys.readouterr().err


def test_a_directory_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError), DispatchCheck(tmp_path / "file" / "below"):
        raise AssertionError("the block is not run")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_processes_that_are_forked_in_the_block_are_not_checked(tmp_path: Path) -> None:
    with DispatchCheck(tmp_path) as check:
        child = os.fork()
        if not child:
            torch.ones(2)
            os._exit(0 if check.counts.compared == 0 and not check.counts.skipped else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        torch.ones(2)
    assert [row["API name"] for row in rows(check.result)] == ["Aten.ones.0"]


def test_a_check_within_itself_is_refused(tmp_path: Path) -> None:
    check = DispatchCheck(tmp_path)
    with check, pytest.raises(UserError, match="running already"), check:
        pass


def test_a_check_can_be_used_again(tmp_path: Path) -> None:
    check = DispatchCheck(tmp_path)
    paths = set()
    for _ in range(2):
        with check:
            torch.ones(2) + 1
        assert check.counts.compared == 2
        paths.add(check.result)
    assert len(paths) == 2


def test_an_empty_block_says_that_nothing_was_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with DispatchCheck(tmp_path) as check:
        pass
    assert "No operator was compared" in capsys.readouterr().err
    assert check.findings == () and rows(check.result) == []


def test_processes_of_a_distributed_training_have_directories_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    with DispatchCheck(tmp_path) as check:
        torch.ones(2) + 1
    assert check.result is not None and check.result.parent == tmp_path / "rank3"
    assert [path.name for path in tmp_path.iterdir()] == ["rank3"]
