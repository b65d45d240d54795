"""Wrong kernels of a device: each is an error of its API, and no other call is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from probe_precheck.judging import merge_statuses
from probe_precheck.model import Status
from probe_pytorch.precheck.runner import PyTorchRunner
from support.runs.explained import recorded_net
from support.runs.prechecked import Prechecked
from torch.nn import functional as F

KERNELS: dict[str, Callable[..., Any]] = {
    "Functional.softmax": lambda x, *rest, **more: F.softmax(x.half(), -1).float(),
    "Functional.gelu": lambda x, **more: F.gelu(x, approximate="tanh"),
    "Functional.layer_norm": lambda x, shape, weight, bias, *rest: F.layer_norm(x, shape, weight, bias, 1e-3),
    "Functional.cross_entropy": lambda x, target, **more: F.nll_loss(F.log_softmax(x.half(), -1).float(), target),
    "Tensor.__matmul__": lambda x, y: x @ y.half().float(),
}  # fmt: skip
"""Functions that the device runs in place of torch's."""


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The record file of a step of the small GPT in float32."""
    return recorded_net(tmp_path_factory.mktemp("net") / "run", "gpt", "float32") / "rank" / "dump.json"


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def apis_in_error(dump: Path, **kernels: Callable[..., Any]) -> set[str]:
    calls = Prechecked(dump, PyTorchRunner(kernels))
    wrong = (name for name in calls.calls if merge_statuses(calls[name].result.statuses) is Status.ERROR)
    return {name.rpartition(".")[0] for name in wrong}


def test_right_kernels_are_no_error(net: Path) -> None:
    assert apis_in_error(net) == set()


@pytest.mark.parametrize("api", KERNELS)
def test_a_wrong_kernel_is_an_error_of_its_api_alone(api: str, net: Path) -> None:
    assert apis_in_error(net, **{api: KERNELS[api]}) == {api}
