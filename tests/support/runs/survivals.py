"""Training steps that a recorder must survive."""

from __future__ import annotations

import collections
import collections.abc
import dataclasses
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from probe_pytorch.debugger import PrecisionDebugger
from probe_pytorch.reader import PyTorchReader
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from support import TESTS
from support.programs import preloaded
from support.runs.recording import Recording

LEVELS = ("L0", "L1", "mix", "L2")
PLAIN_TASKS = ("statistics", "tensor")


def modes() -> tuple[int, int]:
    """Return the number of modes of this thread, of functions and of operators."""
    return torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """Remove what a test leaves behind, such as one that is expected to fail."""
    assert modes() == (0, 0)
    yield
    while torch._C._len_torch_function_stack():
        torch._C._pop_torch_function_stack()
    while torch._C._len_torch_dispatch_stack():
        torch.utils._python_dispatch._pop_mode()
    if PrecisionDebugger._instance is not None:
        PrecisionDebugger._instance._recorder.finish()
        PrecisionDebugger._instance = None


class Counting(TorchDispatchMode):
    """A mode that runs operators and counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def operators_seen(make: Callable[[], Any]) -> int:
    """Return the number of operators of a function that a dispatch mode sees."""
    with Counting() as mode:
        make()
    return mode.count


class _Subclass(Tensor):
    pass


def reason_to_skip_subclasses() -> str:
    """Return why torch cannot make tensors of subclasses under any dispatch mode, or an empty string."""
    try:
        operators_seen(lambda: torch.ones(1).as_subclass(_Subclass))
    except RuntimeError:
        return "this torch cannot make tensors of subclasses under a dispatch mode"
    return ""


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.fc(x))


class Net(nn.Module):
    """``inner`` runs inside ``outer``."""

    def __init__(self) -> None:
        super().__init__()
        self.outer = nn.Sequential(Inner(), nn.LayerNorm(4))
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.outer(x))


def net(seed: int = 0) -> Net:
    torch.manual_seed(seed)
    return Net()


def saved(found: Recording, step: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """The data of every tensor that the records name; raises if one cannot be read."""
    run = PyTorchReader().open(found.directory(step) / "dump.json")
    values = (slot.value for record in run.records() for slot in record.slots)
    return {value.data_name: np.array(run.tensor(value)) for value in values if value.data_name}


def leaves(tree: Any) -> Iterator[dict[str, Any]]:
    """The tensor leaves of records."""
    if isinstance(tree, dict) and "dtype" in tree and "shape" in tree:
        yield tree
    elif isinstance(tree, (dict, list)):
        for item in tree.values() if isinstance(tree, dict) else tree:
            yield from leaves(item)


def assert_data_fit(found: Recording, step: int = 0) -> int:
    """Every tensor that was saved is the one whose maximum its record tells; how many there are."""
    data = saved(found, step)
    told = [leaf for leaf in leaves(found.records(step)) if "data_name" in leaf and leaf["shape"]]
    wrong = [leaf["data_name"] for leaf in told if data[leaf["data_name"]].max() != np.float32(leaf["Max"])]
    assert not wrong
    return len(told)


def python(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own."""
    return preloaded.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        timeout=120,
    )


# -- exceptions -----------------------------------------------------------------------------------


def step_of(model: nn.Module, x: Tensor) -> None:
    model.zero_grad()
    model(x).sum().backward()


# -- modes of the user's --------------------------------------------------------------------------


class SeesFunctions(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(getattr(func, "__name__", str(func)))
        return func(*args, **(kwargs or {}))


class SeesOperators(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


CROSSED = [(level, kind) for level in LEVELS for kind in (SeesFunctions, SeesOperators)]
# -- what the recorder must not change ------------------------------------------------------------


def hooks_of(model: nn.Module) -> dict[str, Any]:
    """The hooks on modules and parameters."""
    found: dict[str, Any] = {}
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if "hook" in name and isinstance(value, dict) and value:
                found[f"{path}.{name}"] = dict(value)
    for path, parameter in model.named_parameters():
        for name in ("_backward_hooks", "_post_accumulate_grad_hooks"):
            if value := getattr(parameter, name, None):
                found[f"{path}.{name}"] = dict(value)
    return found


# -- objects that answer nothing ------------------------------------------------------------------


def refuse(self: object, *_: object) -> Any:
    raise RuntimeError("this object answers nothing")


class Mute:
    __eq__ = __len__ = __bool__ = __iter__ = __getattr__ = __repr__ = __str__ = refuse
    __hash__ = object.__hash__


class MuteDict(dict):  # type: ignore[type-arg]
    __eq__ = __len__ = __bool__ = __iter__ = __getattr__ = keys = values = items = refuse
    __hash__ = object.__hash__


class MuteList(list):  # type: ignore[type-arg]
    __eq__ = __len__ = __bool__ = __iter__ = __getattr__ = __getitem__ = refuse
    __hash__ = object.__hash__


class MuteMapping(collections.abc.Mapping):  # type: ignore[type-arg]
    __eq__ = __len__ = __iter__ = __getitem__ = refuse
    __hash__ = object.__hash__


class MuteClass:
    __class__ = property(refuse)  # type: ignore[assignment]


@dataclasses.dataclass
class MuteField:
    x: int = 0

    def __getattribute__(self, name: str) -> Any:
        return refuse(self) if name == "x" else object.__getattribute__(self, name)


def chain(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


def ring() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


Pair = collections.namedtuple("Pair", "a b")
ODD: dict[str, Any] = {
    "object": Mute(),
    "dict": MuteDict(a=1),
    "object in a list": [Mute()],
    "object in a dict": {"a": Mute(), 3: Mute(), (1, 2): Mute()},
    "object as a key": {Mute(): 1},
    "list": MuteList([1]),
    "mapping": MuteMapping(),
    "class": MuteClass(),
    "field": MuteField(),
    "type": Mute,
    "depth": chain(5000),
    "ring": ring(),
    "surrogate": "\ud800",
    "array of objects": np.array([{}], dtype=object),
    "complex": np.complex64(1j),
    "generator": (i for i in range(3)),
    "deque": collections.deque([torch.ones(2)]),
    "namedtuple": Pair(Mute(), 1),
    "bytes": b"\xff\x00",
    "nan": float("nan"),
}
