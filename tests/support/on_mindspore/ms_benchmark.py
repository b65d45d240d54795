"""The task free_benchmark for MindSpore in tests: its runs, its rows, and programs that it examines."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from operator import attrgetter
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, mint, nn, ops
from probe_mindspore.precheck import device
from probe_mindspore.precheck.tensors import Arguments
from probe_watch.free_benchmark.arguments import map_tensors

from support.on_mindspore.mint_calls import CALLS
from support.on_mindspore.mint_record import typed
from support.on_mindspore.ms_net import Net, batch, training
from support.on_mindspore.ms_recording import Recording

MODES = ("improve_precision", "add_noise", "bit_noise", "no_change", "change_value", "to_cpu")


@contextmanager
def watching(path: Path, fields: dict[str, Any] | None = None, **section: Any) -> Iterator[Recording]:
    """Run the task in a directory."""
    if section.get("pert_mode") == "to_cpu":
        section["fuzz_device"] = "cpu"
    watched = Recording(path, task="free_benchmark", level="L1", free_benchmark=section, **(fields or {}))
    try:
        yield watched
    finally:
        watched.finish()


def watched(path: Path, program: Callable[[], Any], **section: Any) -> list[dict[str, str]]:
    """Run a program in one step of the task, and return the rows."""
    with watching(path, **section) as task:
        task.start()
        try:
            program()
        finally:
            task.stop()
            task.step()
    return rows(path)


def rows(path: Path, step: int = 0) -> list[dict[str, str]]:
    """Return the rows of a step."""
    table = path / f"step{step}" / "rank" / "free_benchmark.csv"
    if not table.exists():
        return []
    with table.open(newline="") as file:
        return list(csv.DictReader(file))


def differs_only_in_last_bits(path: Path) -> bool:
    """Return True if no row has a difference above those of kernels such as ``pow``.

    Their last bits depend on where the memory of a tensor begins: 60 equal calls had three gradients.
    """
    found = rows(path)
    return all(row["max_rel"] and float(row["max_rel"]) < 1e-6 for row in found)


def bits(values: Any) -> list[bytes]:
    if isinstance(values, (list, tuple)):
        return [part for value in values for part in bits(value)]
    return [values.asnumpy().tobytes()]


def trained(task: Recording | None = None) -> list[bytes]:
    """Train a net with dropout and assignments in place for two steps, and return what that leaves."""
    ms.set_seed(3)
    net, dropout = Net(), nn.Dropout(p=0.3)
    net.set_train(), dropout.set_train()
    step = training(net)
    buffer = Parameter(Tensor(np.zeros((2, 5), np.float32)), name="buffer", requires_grad=False)
    results = []
    for number in range(2):
        x, y = batch(number)
        if task is not None:
            task.start(net)
        x[:, 0] = 0.5
        loss, output, gradients = step(dropout(x) + ops.dropout(x, 0.2), y)
        ops.assign(buffer, output * 2)
        buffer.add_(output)
        half = mint.matmul(output.astype(ms.float16), output.astype(ms.float16).T)
        if task is not None:
            task.stop()
            task.step()
        results += bits([x, loss, output, gradients, buffer, half, list(net.get_parameters())])
        results += bits([ops.dropout(x, 0.5), ops.standard_normal((3,)), dropout(x)])
    return results


def every_call_of_mint(dtype: str, *, gradients: bool = False) -> int:
    """Call each API of mint that runs on a CPU, and return the number of calls that the dtype has kernels for.

    Args:
        dtype: The dtype of floating tensors.
        gradients: True to compute the gradients of each call as well, and to count calls that have some.
    """
    roots = {"Mint": mint, "MintFunctional": mint.nn.functional}
    count = 0
    for each in CALLS:
        arguments = Arguments(typed(each.positional, dtype), typed(dict(each.keywords), dtype))
        positional, keywords = device._create_arguments(arguments, device.create_tensor)
        family, _, name = each.api.partition(".")
        function = attrgetter(name)(roots[family])
        with suppress(RuntimeError, TypeError, ValueError):
            if gradients:
                _run_with_gradients(function, positional, keywords)
            else:
                function(*positional, **keywords)
            count += 1
    return count


def _run_with_gradients(function: Any, positional: Any, keywords: Any) -> None:
    """Run a call and its backward pass; all its floating arguments and results are part of the graph.

    Errors of the call are raised after the pass, because MindSpore goes on differentiating otherwise.
    """
    errors: list[Exception] = []

    def loss(one: Tensor) -> Tensor:
        def scaled(value: Any) -> Any:
            return value * one.astype(value.dtype) if _is_floating(value) else value

        try:
            args, kwargs = (map_tensors(scaled, value, Tensor) for value in (positional, keywords))
            result = function(*args, **kwargs)
            results = result if isinstance(result, (list, tuple)) else [result]
            sums = [each.astype(ms.float32).sum() for each in results if _is_floating(each)]
            return sum(sums[1:], sums[0]) if sums else one
        except Exception as error:
            errors.append(error)
            return one

    ms.grad(loss)(Tensor(1.0, ms.float32)).asnumpy()
    if errors:
        raise errors[0]


def _is_floating(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()
