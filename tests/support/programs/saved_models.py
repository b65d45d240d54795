"""A model that is saved, copied, sent and exported in tests, and the ways to do so; no probe is imported here."""

from __future__ import annotations

import copy
import inspect
import io
import multiprocessing.reduction
import pickle
import re
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize, prune

DURING: list[Callable[[], None]] = []
"""Called inside the forward of a ``Pause``, once."""


class Net(nn.Module):
    """An embedding whose weight the last layer shares, a layer that is called twice, a function of torch."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(7, 6)
        self.up, self.norm = nn.Linear(6, 6), nn.LayerNorm(6)
        self.inner = nn.Sequential(nn.Linear(6, 6), nn.ReLU())
        self.head = nn.Linear(6, 7)
        self.head.weight = self.words.weight
        self.register_buffer("scale", torch.tensor(0.5))
        self.act = F.gelu

    def forward(self, x: Tensor) -> Tensor:
        """Give out a score for each word."""
        hidden = self.norm(self.act(self.up(self.words(x))))
        hidden = self.inner(hidden) + self.inner(hidden * self.scale)
        return self.head(hidden)


class Pause(nn.Module):
    """A layer that does what is in ``DURING``, and nothing else."""

    def forward(self, x: Tensor) -> Tensor:
        """Give out what it receives."""
        while DURING:
            DURING.pop()()
        return x


def doubled(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Double what the module receives: a hook of the user's that a pickle can name."""
    return tuple(value * 2 for value in args)


def shifted(_: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
    """Add one to what the module gives out: a hook of the user's that a pickle can name."""
    return output + 1


def net() -> Net:
    """Make a model, always the same."""
    torch.manual_seed(0)
    return Net()


def paused() -> Net:
    """Make a model in whose forward something may be done."""
    model = net()
    model.inner.append(Pause())
    return model


def hooked() -> Net:
    """Make a model that has hooks of its own."""
    model = net()
    model.norm.register_forward_pre_hook(doubled)
    model.inner[1].register_forward_hook(shifted)
    for module in model.modules():
        for hooks in (module._forward_pre_hooks, module._forward_hooks):
            held = list(hooks.values())
            hooks.clear()
            hooks.update(enumerate(held, -9))  # torch counts the hooks of a process
    return model


def words() -> Tensor:
    """Return the inputs of the model."""
    return torch.arange(12).reshape(3, 4) % 7


def dicts_of_hooks(model: nn.Module) -> list[tuple[str, str, str, int]]:
    """The names of all attributes of all modules, and how many hooks there are."""
    found = []
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            count = len(value) if "hook" in name and isinstance(value, dict) else -1
            found.append((path, name, type(value).__name__, count))
    return found


def to_bytes(value: Any) -> bytes:
    """Return the bytes that ``torch.save`` writes."""
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def _loaded(model: nn.Module) -> Any:
    kinds = [Net, Pause, nn.Embedding, nn.Linear, nn.LayerNorm, nn.Sequential, nn.ReLU, F.gelu, set]
    if not hasattr(torch.serialization, "safe_globals"):  # since torch 2.5
        pytest.skip("this torch has no torch.serialization.safe_globals")
    with torch.serialization.safe_globals([*kinds, doubled, shifted]):
        twin = torch.load(io.BytesIO(to_bytes(model)), weights_only=True)
    return dicts_of_hooks(twin), to_bytes(twin)


class _Pickler(pickle.Pickler):
    def persistent_id(self, value: Any) -> Any:
        return value.device.type if isinstance(value, (torch.TypedStorage, torch.UntypedStorage)) else None


class _PicklerInPython(pickle._Pickler):  # type: ignore[name-defined,misc]
    def persistent_id(self, value: Any) -> Any:
        return value.device.type if isinstance(value, (torch.TypedStorage, torch.UntypedStorage)) else None


def _pickled(kind: Any) -> Callable[[nn.Module], Any]:
    """Pickle by every protocol, without the data, which torch numbers by their addresses."""

    def dump(model: nn.Module) -> Any:
        files = [io.BytesIO() for _ in range(6)]
        for protocol, file in enumerate(files):
            kind(file, protocol).dump([model, vars(model)["_forward_hooks"]])
        return [file.getvalue() for file in files]

    return dump


def _deep(model: nn.Module) -> Any:
    twin = copy.deepcopy(model)
    return dicts_of_hooks(twin), to_bytes(twin), to_bytes(twin(words()))


def _shallow(model: nn.Module) -> Any:
    twin = copy.copy(model)
    return to_bytes(twin), to_bytes(twin(words()))


def _replica(model: nn.Module) -> Any:
    return sorted(vars(model._replicate_for_data_parallel()))  # type: ignore[operator]


def _parametrized(model: Any) -> Any:
    parametrize.register_parametrization(model.up, "weight", nn.Tanh())
    found = to_bytes(model(words())), to_bytes(model.state_dict())
    parametrize.remove_parametrizations(model.up, "weight", leave_parametrized=False)
    return found, to_bytes(model)


def _pruned(model: Any) -> Any:
    prune.l1_unstructured(model.up, "weight", 0.5)
    during = to_bytes(model.state_dict()), prune.is_pruned(model), sorted(vars(model.up))
    prune.remove(model.up, "weight")
    return during, to_bytes(model)


def _fused(model: Any) -> Any:
    model.eval()
    found = torch.ao.quantization.fuse_modules(model, [["inner.0", "inner.1"]])
    return repr(found), dicts_of_hooks(found), to_bytes(found(words()))


def _quantized(model: Any) -> Any:
    found = torch.ao.quantization.quantize_dynamic(model.inner, {nn.Linear})
    return repr(found), to_bytes(found(torch.ones(2, 6)))


def _functional(model: nn.Module) -> Any:
    weights = {name: value * 2 for name, value in model.named_parameters()}
    return to_bytes(torch.func.functional_call(model, weights, (words(),)).detach()), to_bytes(model)


def _exported(strict: bool) -> Callable[[nn.Module], Any]:
    def export(model: nn.Module) -> Any:
        if "strict" not in inspect.signature(torch.export.export).parameters:  # since torch 2.3
            pytest.skip("this torch exports strictly, which does not work where there are hooks of all modules")
        found = torch.export.export(model, (words(),), strict=strict)
        return found.graph_module.code, str(found.graph_signature), to_bytes(found.module()(words()).detach())

    return export


def _graph(made: Any) -> str:
    """The graph of a script without where each value comes from, and without the names and numbers of values."""
    text = re.sub(r" # /.*", "", re.sub(r"___torch_mangle_\d+\.", "", str(made.inlined_graph)))
    numbers: dict[str, str] = {}
    return re.sub(r"%[\w.]+", lambda name: numbers.setdefault(name[0], f"%{len(numbers)}"), text)


def _scripted(model: nn.Module) -> Any:
    plain = nn.Sequential(model.inner, model.norm)  # type: ignore[list-item]
    found = torch.jit.script(plain)
    return _graph(found), to_bytes(found(torch.ones(2, 6)).detach())


def _traced(model: nn.Module) -> Any:
    found = torch.jit.trace(model, words(), check_trace=False)
    file = io.BytesIO()
    torch.jit.save(found, file)
    return _graph(found), b"probe" in file.getvalue()


def _onnx(model: nn.Module) -> Any:
    file = io.BytesIO()
    keywords = {"dynamo": False} if "dynamo" in inspect.signature(torch.onnx.export).parameters else {}
    torch.onnx.export(model, (words(),), file, **keywords)
    return file.getvalue()


def _symbolic(model: nn.Module) -> Any:
    return (torch.fx.symbolic_trace(model).code,)


def _shared(model: nn.Module) -> Any:
    model.share_memory()
    return to_bytes(model), [p.is_shared() for p in model.parameters()]


def _sent(model: Any) -> Any:
    """Pickle as a queue between processes does; the bytes name files, so only what comes back is compared."""
    pickler = multiprocessing.reduction.ForkingPickler
    found = [pickle.loads(pickler.dumps(value)) for value in (model, model.up.weight)]
    return dicts_of_hooks(found[0]), to_bytes(found), [type(value).__name__ for value in found]


WAYS: dict[str, Callable[[Any], Any]] = {
    "torch.save": to_bytes,
    "weights_only": _loaded,
    "pickle": _pickled(_Pickler),
    "pickle in Python": _pickled(_PicklerInPython),
    "state_dict": lambda model: to_bytes(model.state_dict()),
    "parameters": lambda model: to_bytes(list(model.parameters())),
    "a deep copy": _deep,
    "a deep copy of parameters": lambda model: to_bytes(copy.deepcopy(list(model.parameters()))),
    "a shallow copy": _shallow,
    "attributes": lambda model: sorted({name for module in model.modules() for name in vars(module)}),
    "replicate": _replica,
    "parametrize": _parametrized,
    "prune": _pruned,
    "functional_call": _functional,
    "share_memory": _shared,
    "send": _sent,
}
"""Things that can be done to any model, also inside its forward."""

GRAPHS: dict[str, Callable[[Any], Any]] = {
    "export": _exported(strict=False),
    "strict export": _exported(strict=True),
    "script": _scripted,
    "trace": _traced,
    "onnx": _onnx,
    "symbolic_trace": _symbolic,
    "fuse_modules": _fused,
    "quantize_dynamic": _quantized,
}
"""Things that make another program of a model."""


def outcome(way: Callable[[Any], Any], model: nn.Module) -> tuple[Any, list[str]]:
    """Return what a way gives or raises, and its warnings other than of deprecation."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", ResourceWarning)  # of what another test left to the collector
        try:
            result = way(model)
        except Exception as error:
            result = f"{type(error).__name__}: {error}"
    said = [one for one in said if not issubclass(one.category, DeprecationWarning)]
    return result, [str(one.message) for one in said if "deprecated" not in str(one.message)]


def step(model: nn.Module) -> Tensor:
    """A forward and a backward."""
    loss: Tensor = model(words()).square().mean()
    loss.backward()
    return loss


def at_work(queue: Any, answers: Any) -> None:
    """In another process: say what came, and what of probe was loaded."""
    found = queue.get()
    answers.put((to_bytes([value.detach() if isinstance(value, Tensor) else value for value in found]),
                 sorted(name for name in sys.modules if name.partition(".")[0].startswith("probe"))))  # fmt: skip
    queue.get()
