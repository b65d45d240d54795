"""Arguments of the check: each mistake is one sentence with a way to correct it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from probe_pytorch import DispatchCheck
from probe_pytorch.dispatch_check import operators
from probe_pytorch.dispatch_check.operators import SkipReason
from probe_pytorch.dispatch_check.settings import DispatchSettings, OnError, find_definition, parse_settings
from support.cases import every

from probe_core.errors import UserError


def parsed(**given: Any) -> DispatchSettings:
    defaults = {"dump_path": "out", "skip": None, "processes": 0, "memory": "2GiB", "device": None,
                "on_error": "continue"}  # fmt: skip
    return parse_settings(**{**defaults, **given})


def test_defaults() -> None:
    expected = DispatchSettings(Path("out"), frozenset(), 0, 2 << 30, "", OnError.CONTINUE)
    assert parsed() == expected


@every("argument, value, parsed_value", [
    ("memory", "1.5 MiB", 3 << 19), ("memory", 1 << 20, 1 << 20), ("memory", "3g", 3 << 30),
    ("device", "cuda:1", "cuda"), ("device", "cpu", "cpu"), ("processes", 3, 3), ("on_error", "raise", OnError.RAISE),
    ("dump_path", Path("x"), Path("x")), ("skip", ["mm"], {"aten.mm"}), ("skip", ["mm", "aten::mm"], {"aten.mm"}),
    ("skip", ("aten.add.Tensor",), {"aten.add.Tensor"}), ("skip", ["add.Tensor"], {"aten.add.Tensor"}),
    ("skip", [], set()),
])  # fmt: skip
def test_values(argument: str, value: Any, parsed_value: Any) -> None:
    assert getattr(parsed(**{argument: value}), argument) == parsed_value


@every("argument, value, text", [
    ("memory", "much", "memory must be a size"), ("memory", 5, "memory must be a size"),
    ("memory", True, "memory must be a size"), ("processes", -1, "processes must be a whole number"),
    ("processes", 65, "processes must be a whole number"), ("processes", "2", "processes must be a whole number"),
    ("processes", True, "processes must be a whole number"), ("device", "gpu!", "device must be a device"),
    ("device", 1.5, "device must be a device"), ("on_error", "stop", "on_error must be one of"),
    ("on_error", None, "on_error must be one of"), ("dump_path", 3, "dump_path must be a path"),
    ("dump_path", "", "dump_path must be a path"), ("skip", 3, "skip must be a YAML file or a list"),
    ("skip", [3], "not the name of an operator"), ("skip", ["aten.mmm"], "unknown operator"),
    ("skip", ["mm.nothing"], "unknown overload"), ("skip", ["other.mm"], "unknown operator"),
    ("skip", [""], "not the name of an operator"), ("skip", "missing.yaml", "cannot be read"),
])  # fmt: skip
def test_mistakes(argument: str, value: Any, text: str) -> None:
    with pytest.raises(UserError) as error:
        parsed(**{argument: value})
    assert text in error.value.what and (error.value.fix or error.value.choices)


@every("content, text", [
    ("", "does not contain a list"), ("3", "does not contain a list"), ("skip: mm", "does not contain a list"),
    ("other: [mm]", "does not contain a list"), ("- [mm]", "not the name"), ("- mmm", "unknown operator"),
    ("skip: [", "not valid YAML"), ("- &a [*a]", "not valid YAML"), (b"\xff\xfe\xff", "cannot be read"),
])  # fmt: skip
def test_mistakes_in_the_list(content: str | bytes, text: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "skip.yaml"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(UserError) as error:
            parsed(skip=path)
        assert text in error.value.what and error.value.fix


def test_lists_in_files(tmp_path: Path) -> None:
    path = tmp_path / "skip.yaml"
    for text in ("- mm\n- aten.add.Tensor\n", "skip: [mm, aten.add.Tensor]", "[aten::mm, 'add.Tensor']"):
        path.write_text(text)
        assert parsed(skip=str(path)).skip == {"aten.mm", "aten.add.Tensor"}


def test_raising_needs_results_at_once() -> None:
    with pytest.raises(UserError, match="cannot be used with processes"):
        parsed(on_error="raise", processes=1)


pytestmark = [
    pytest.mark.skipif(hasattr(torch, "npu"), reason="torch_npu has these operators"),
    pytest.mark.skipif(not hasattr(torch.library.Library, "_destroy"), reason="this torch cannot take a kernel back"),
]


@contextmanager
def fused_operators(swiglu: Callable[..., torch.Tensor]) -> Iterator[Any]:
    """Define operators of torch_npu."""
    library = torch.library.Library("npu", "DEF")
    library.define("npu_swiglu(Tensor self, int dim=-1) -> Tensor")
    library.define("npu_unknown(Tensor self) -> Tensor")
    library.impl("npu_swiglu", swiglu, "CPU")
    library.impl("npu_unknown", lambda x: x.clone(), "CPU")
    try:
        yield torch.ops.npu
    finally:
        library._destroy()
        operators.read_operator.cache_clear()


def right(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    first, second = x.chunk(2, dim)
    return torch.nn.functional.silu(first) * second


def wrong(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    first, second = x.chunk(2, dim)
    return torch.sigmoid(first) * second


def test_operators_have_the_references_of_the_pre_check() -> None:
    assert find_definition("npu", "npu_swiglu") is not None
    assert find_definition("npu", "npu_unknown") is None
    assert find_definition("other", "npu_swiglu") is None
    assert find_definition("aten", "mm") is None


@pytest.mark.parametrize("kernel", [right, wrong])
def test_a_wrong_fused_operator_is_found(kernel: Callable[..., torch.Tensor], tmp_path: Path) -> None:
    with fused_operators(kernel) as npu, DispatchCheck(tmp_path) as check:
        npu.npu_swiglu(torch.randn(4, 8))
        npu.npu_unknown(torch.randn(4))
    names = [(finding.name, finding.operator) for finding in check.findings]
    assert names == ([("Aten.npu.npu_swiglu.0", "npu.npu_swiglu.default")] if kernel is wrong else [])
    assert check.counts.operators == {"npu.npu_swiglu.default": 1}
    assert check.counts.skipped[SkipReason.OTHER_NAMESPACE, "npu.npu_unknown.default"] == 1
