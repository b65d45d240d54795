"""Names that a record may call: what computes, and nothing else that can be called in torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from probe_pytorch.precheck import apis
from probe_pytorch.precheck.apis import NoSuchApi, _is_pure_schema, find_function, is_pure
from support.cases import every
from support.programs.training import lstm_runs_in_bf16
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

REFUSED = [
    # print, files, settings, memory, other processes
    *(f"Aten.{name}" for name in ("_print", "save", "warn", "from_file", "seed", "manual_seed", "set_grad_enabled",
                                  "backward", "_backward", "grad", "set_", "set_data", "retain_grad", "record_stream",
                                  "_cufft_clear_plan_cache", "_cufft_set_plan_cache_max_size", "_pin_memory",
                                  "_assert_async", "_test_warn_in_autograd", "to_here", "wait", "format", "append",
                                  "fbgemm_linear_fp16_weight", "quantized_lstm", "_sparse_coo_tensor_unsafe",
                                  "__class__", "__getattr__", "name", "overloads", "nothing", "")),
    *(f"Torch.{name}" for name in ("save", "load", "from_file", "frombuffer", "_from_blob", "compile", "manual_seed",
                                   "seed", "set_default_device", "set_num_threads", "set_rng_state", "_print",
                                   "fork", "import_ir_module", "PyTorchFileWriter", "UntypedStorage", "Generator",
                                   "_cufft_clear_plan_cache", "__setattr__", "__reduce_ex__", "__init_subclass__",
                                   "hub.load", "os.system", "ops.load_library", "classes.load_library", "_C._jit_init",
                                   "Tensor.__reduce_ex__", "nn.functional.relu", "linalg.torch.save", "linalg.__class__",
                                   "linalg._add_docstr", "fft.torch.os.system", "serialization.load", "autocast")),
    *(f"Tensor.{name}" for name in ("__reduce_ex__", "__setstate__", "__class__", "__deepcopy__", "__array__",
                                    "apply_", "backward", "register_hook", "data_ptr", "const_data_ptr", "set_",
                                    "share_memory_", "storage", "untyped_storage", "record_stream", "module_load",
                                    "data.numpy", "grad_fn.register_hook")),
    *(f"VF.{name}" for name in ("from_file", "_print", "_from_blob", "__class__", "set_grad_enabled", "frombuffer")),
    *(f"Functional.{name}" for name in ("handle_torch_function", "boolean_dispatch", "torch.save", "importlib",
                                        "has_torch_function", "_sym_int", "Callable", "warnings.warn")),
]  # fmt: skip


@every("name", REFUSED)
def test_what_does_more_than_compute_is_refused(name: str) -> None:
    scope, _, api = name.partition(".")
    with pytest.raises(NoSuchApi):
        find_function(scope, api)


@pytest.mark.parametrize("scope", ["Functional", "Tensor", "Torch", "VF"])
def test_what_the_recorder_lists_is_run(scope: str) -> None:
    for api in apis._read_api_section(apis.SECTION_BY_SCOPE[scope]):
        found: Any = apis.PLACES[scope]()
        for part in api.split("."):
            found = getattr(found, part, None)
        if callable(found):
            assert find_function(scope, api) is found


def test_an_operator_takes_values_alone() -> None:
    """Of all that torch knows under a name that may be called, no overload takes a file, a storage or an object."""
    names = {name[6:].partition(".")[0] for name in torch._C._dispatch_get_all_op_names() if "aten::" in name}
    allowed = {name for name in names if is_pure(name)}
    assert len(allowed) > 900
    for schema in torch._C._jit_get_all_schemas():
        space, _, name = schema.name.partition("::")
        for argument in schema.arguments if space == "aten" and name in allowed else ():
            assert not any(word in str(argument.type) for word in ("Storage", "Stream", "classes", "Future")), name
            assert "file" not in argument.name, name


class Seen(TorchDispatchMode):
    """The operators that reach the dispatcher."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "aten":
            self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@contextmanager
def seen(names: set[str]) -> Iterator[None]:
    with Seen() as mode:
        yield
    names |= mode.names


def has_fused_adam() -> bool:
    """Return True if torch has fused optimizers on the CPU, as since version 2.4."""
    try:
        torch.optim.Adam([torch.ones(1)], fused=True)
    except RuntimeError:
        return False
    return True


def train(model: nn.Module, x: torch.Tensor, optimizer: Any) -> None:
    chosen = optimizer(model.parameters(), lr=0.1)
    for _ in range(2):
        found = model(x)
        loss = (found[0] if isinstance(found, tuple) else found).float().square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        chosen.step()
        chosen.zero_grad(set_to_none=False)


MODELS = {
    "linear": lambda: (nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Dropout(), nn.LayerNorm(8)), torch.randn(3, 4)),
    "conv": lambda: (nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
                                   nn.AdaptiveAvgPool2d(2), nn.Upsample(scale_factor=2, mode="bilinear")),
                     torch.randn(2, 1, 9, 9)),
    "norms": lambda: (nn.Sequential(nn.GroupNorm(2, 4), nn.InstanceNorm2d(4), nn.PReLU(), nn.SiLU(), nn.Softmax(1),
                                    nn.Hardswish(), nn.Mish(), nn.ELU(), nn.LeakyReLU(), nn.Softplus()),
                      torch.randn(2, 4, 3, 3)),
    "transformer": lambda: (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), torch.randn(2, 5, 8)),
    "lstm": lambda: (nn.LSTM(4, 8, 2), torch.randn(5, 2, 4)),
    "gru": lambda: (nn.GRU(4, 8), torch.randn(5, 2, 4)),
    "embedding": lambda: (nn.Sequential(nn.Embedding(10, 4), getattr(nn, "RMSNorm", nn.LayerNorm)(4), nn.Flatten()), torch.randint(10, (3, 5))),
}  # fmt: skip


@pytest.mark.parametrize("what", MODELS)
def test_what_level_l2_records_of_a_training_is_run(what: str) -> None:
    """Forward, backward, clipping and the optimizer, fused over all parameters or one by one."""
    names: set[str] = set()
    optimizers = [torch.optim.SGD, torch.optim.AdamW, lambda p, lr: torch.optim.Adam(p, lr, foreach=True)]
    if has_fused_adam():
        optimizers.append(lambda p, lr: torch.optim.Adam(p, lr, fused=True))
    with seen(names):
        for optimizer in optimizers:
            model, x = MODELS[what]()
            train(model, x, optimizer)
        with torch.autocast("cpu", torch.bfloat16, enabled=what != "lstm" or lstm_runs_in_bf16()):
            model, x = MODELS[what]()
            model(x)
    assert len(names) > 20
    assert not [name for name in sorted(names) if not is_pure(name)]


def test_what_level_l2_records_of_losses_is_run() -> None:
    names: set[str] = set()
    with seen(names):
        x, y = torch.randn(5, 5, requires_grad=True), torch.randint(5, (5,))
        q = torch.randn(1, 2, 8, 16, requires_grad=True)
        losses = [
            F.cross_entropy(x, y, label_smoothing=0.1), F.nll_loss(x.log_softmax(1), y), F.mse_loss(x, x.detach()),
            F.binary_cross_entropy_with_logits(x, x.detach().sigmoid()), F.smooth_l1_loss(x, x.detach() + 1),
            F.kl_div(x, x.detach().softmax(1)), F.huber_loss(x, x.detach()), F.scaled_dot_product_attention(q, q, q),
            torch.einsum("ij,kj->ik", x, x), torch.fft.rfft(x).abs(), torch.linalg.svd(x)[1], x.cumsum(0), x.sort()[0],
            x.topk(2)[0], x[y], x.gather(1, y[:, None]), torch.where(x > 0, x, 0.0), x.norm(), torch.cdist(x, x),
            F.pad(x, (1, 1)), x.masked_fill(x > 0, 0.0), x.roll(1), torch.stack([x, x]), x.std(), x.detach().unique(),
            F.interpolate(x[None, None], size=(8, 8), mode="bicubic"), F.grid_sample(x[None, None], torch.zeros(1, 2, 2, 2)),
        ]  # fmt: skip
        sum(loss.sum() for loss in losses).backward()
        torch.rand(3).bernoulli_(0.5)
        torch.ones(3).multinomial(1)
        float(x.detach().sum())
    assert len(names) > 60
    assert not [name for name in sorted(names) if not is_pure(name)]


def test_operators_with_overloads_for_named_dimensions_only_compute() -> None:
    """Torch 2.1 to 2.6 have overloads such as ``sum.dim_DimnameList``, whose names of dimensions are texts."""
    schema: Any = torch._C.parse_schema("aten::sum.names(Tensor self, str[1] dim, bool keepdim=False) -> Tensor")
    assert _is_pure_schema(schema, False)
    schema = torch._C.parse_schema("aten::from_file(str filename, Tensor self) -> Tensor")
    assert not _is_pure_schema(schema, False)
