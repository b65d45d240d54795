"""The stand-in NPU does what a device of torch does, and its faults change one operator."""

from __future__ import annotations

import importlib.util
import os
import sys
import textwrap

import pytest

from support import TESTS
from support.programs import preloaded

START = """
import copy, gc, io, weakref
import torch
import torch.nn.functional as F
from torch import nn
from support.standins.standin_npu import fault, install, slow_precision

npu = install()
assert install() == npu == torch.device("npu", 0)
cpu = torch.device("cpu")
torch.manual_seed(0)

def same(a, b):
    assert a.dtype == b.dtype and torch.equal(a.cpu(), b.cpu()), (a, b)

def raises(kind, words, action):
    try:
        action()
    except kind as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"no {kind.__name__}")
"""


def script(text: str) -> None:
    """Run a script that may register a device: in a process of its own."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("needs torch")
    import torch

    if not hasattr(torch._C, "_acc") or not hasattr(torch._C._acc, "create_empty_tensor"):
        pytest.skip("this torch cannot have a device written in Python")
    path = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
    # torch_npu, where it is installed, would take the name first.
    environment = {**os.environ, "PYTHONPATH": path, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    done = preloaded.run(
        [sys.executable, "-c", START + textwrap.dedent(text)], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_training_equals_the_cpu_bit_for_bit() -> None:
    script("""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.norm, self.last = nn.Embedding(50, 16), nn.LayerNorm(16), nn.LayerNorm(16)
            self.qkv, self.out, self.head = nn.Linear(16, 48), nn.Linear(16, 16), nn.Linear(16, 50)
            self.mlp = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Dropout(0.3), nn.Linear(64, 16))

        def forward(self, x):
            h = self.embed(x)
            q, k, v = (each.unflatten(-1, (2, 8)).transpose(1, 2) for each in self.qkv(self.norm(h)).chunk(3, -1))
            h = h + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
            weights = torch.softmax(h @ h.transpose(1, 2), -1)
            return self.head(self.last(h + torch.matmul(weights, self.mlp(h))))

    first, tokens = Net(), torch.randint(0, 50, (4, 9))

    def train(device, optimizer, **options):
        torch.manual_seed(1)
        net, x = copy.deepcopy(first).to(device), tokens.to(device)
        step, seen = optimizer(net.parameters(), lr=0.1, **options), []
        for _ in range(3):
            step.zero_grad()
            with sdpa_kernel(SDPBackend.MATH):  # the CPU would choose a fused kernel that the device has not
                loss = F.cross_entropy(net(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
            loss.backward()
            assert loss.device.type == device.type
            assert all(each.grad.device.type == device.type for each in net.parameters())
            seen += [loss.detach(), *(each.grad.clone() for each in net.parameters())]
            step.step()
            seen += [each.detach().clone() for each in net.parameters()]
        return seen

    for optimizer, there, here in [
        (torch.optim.SGD, {"momentum": 0.9}, {"momentum": 0.9, "foreach": True}),
        (torch.optim.SGD, {"foreach": False}, {}),
        (torch.optim.AdamW, {}, {"foreach": True}),
        (torch.optim.AdamW, {"foreach": False}, {}),
    ]:
        pairs = list(zip(train(npu, optimizer, **there), train(cpu, optimizer, **here), strict=True))
        assert len(pairs) > 90
        for ours, theirs in pairs:
            same(ours, theirs)
    """)


def test_tensors_live_on_the_device() -> None:
    script("""
    x = torch.arange(24.0).reshape(4, 6).to("npu")
    assert x.device.type == "npu" and x.is_npu and not torch.ones(1).is_npu
    assert x.sum().item() == 276 and x[0, :2].tolist() == [0, 1] and x.cpu().device.type == "cpu"
    assert repr(x[0, :2]) == "tensor([0., 1.], device='npu:0')", repr(x[0, :2])
    assert torch.zeros(2, device="npu").is_npu and torch.tensor([1, 2], device="npu").is_npu

    # Views alias, in both directions.
    ours, theirs = x.clone(), x.cpu()
    for each in (ours, theirs):
        each.view(6, 4)[1].fill_(5)
        each.t()[0] += 1
        each[1:3, ::2] = 7
        each.expand(2, 4, 6)[1, 3].mul_(3)
        each.unfold(1, 2, 2)[2, 1].neg_()
        each.view(torch.int32)[0, 0] = 12345
    same(ours, theirs)
    assert ours[1:]._base is ours and ours[1:].data_ptr() == ours.data_ptr() + 24
    assert ours.t().untyped_storage()._cdata == ours.untyped_storage()._cdata
    wave = torch.fft.fft(x)
    same(wave.conj() @ x.t().to(wave.dtype), torch.fft.fft(x.cpu()).conj() @ x.cpu().t().to(wave.dtype))
    wave.real.zero_()
    assert wave.cpu().real.abs().sum() == 0

    # In-place and out= write through, out= with a new size too.
    kept = ours.add_(1)
    assert kept is ours
    whole = torch.empty(4, 6, device=npu)
    part = whole[1]
    torch.add(x, 1, out=whole)
    same(part, x.cpu()[1] + 1)
    values, places = torch.empty(0, device=npu), torch.empty(0, dtype=torch.long, device=npu)
    assert torch.max(x, 0, out=(values, places))[0] is values
    same(values, x.cpu().max(0).values)

    # Operators.
    for act in (
        lambda v: torch.stack([v, v]), lambda v: torch.aminmax(v).max, lambda v: v.sum(dtype=torch.float64),
        lambda v: torch.linalg.vector_norm(v, dtype=torch.float64), lambda v: v[v > 3], lambda v: v.std(),
        lambda v: F.layer_norm(v, (6,)), lambda v: v.to(torch.bfloat16), lambda v: 1 + v, lambda v: v.topk(2).indices,
        lambda v: F.embedding(torch.tensor([1, 2], device=v.device), v), lambda v: torch.einsum("ij,kj->ik", v, v),
        lambda v: F.conv1d(v[None], v[:, None, :3].contiguous(), groups=4), lambda v: torch.isfinite(v).all(),
    ):
        assert act(x).is_npu
        same(act(x), act(x.cpu()))

    # Devices do not mix, but for scalars, indices and copies.
    assert (x + torch.tensor(1.0)).is_npu and x[torch.tensor([0])].is_npu
    raises(RuntimeError, "same device", lambda: x + torch.ones(6))
    raises(RuntimeError, "same device", lambda: torch.ones(6).add_(x[0]))
    raises(TypeError, "npu", x.numpy)

    # Copies and state.
    net = nn.Sequential(nn.Linear(3, 4), nn.Conv1d(1, 2, 2)).to("npu")
    twin = copy.deepcopy(net)
    twin[0].weight.data.zero_()
    assert net[0].weight.is_npu and net[0].weight.abs().sum() > 0
    twin.load_state_dict(net.state_dict())
    same(twin[0].weight, net[0].weight)
    file = io.BytesIO()
    torch.save([x, x[1:]], file)
    for place in ("cpu", None):
        file.seek(0)
        back, view = torch.load(file, map_location=place)
        same(back, x)
        assert back.is_npu == (place is None) and view.data_ptr() == back.data_ptr() + 24

    # Random numbers: a stream of its own, seeded with torch's.
    torch.manual_seed(3)
    same(torch.randn(5, device="npu"), torch.randn(5))
    torch.npu.manual_seed(4)
    drawn = torch.rand(3, device="npu")
    torch.npu.manual_seed_all(4)
    same(drawn, torch.rand(3, device="npu"))
    assert torch.npu.is_available() and torch.npu.device_count() == 1 and torch.npu.current_device() == 0
    torch.npu.synchronize()

    # The bytes go when the last view goes.
    gone = weakref.ref(whole.untyped_storage()._standin_bytes)
    del whole
    gc.collect()
    assert gone() is not None
    del part
    gc.collect()
    assert gone() is None
    """)


def test_faults_and_modes() -> None:
    script("""
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    here = torch.randn(4, 4)
    x = here.npu()

    def tanh_gelu(x, approximate="none"):
        assert x.device.type == "cpu"
        return F.gelu(x, approximate="tanh")

    with fault("aten::gelu", tanh_gelu):
        wrong = F.gelu(here, approximate="tanh")
        assert not torch.equal(wrong, F.gelu(here))  # the CPU has no fault
        same(F.gelu(x), wrong)
        out = torch.empty(0, device=npu)
        torch._C._nn.gelu(x, out=out)
        same(out, wrong)
        for act in (torch.sigmoid, torch.tanh, lambda v: v @ v, lambda v: F.layer_norm(v, (4,)), F.silu):
            same(act(x), act(here))
        a, b = here.clone().requires_grad_(), x.clone().requires_grad_()
        F.gelu(a).sum().backward()
        F.gelu(b).sum().backward()
        same(a.grad, b.grad)  # its gradient is another operator
        with fault("aten::gelu", lambda x, approximate="none": x):
            assert F.gelu(x) is not x
            same(F.gelu(x), here)
        same(F.gelu(x), wrong)
    same(F.gelu(x), F.gelu(here))

    with fault("aten::add_", lambda x, other, alpha=1: x - other):
        moved = x.clone()
        assert moved.add_(1) is moved
        same(moved, here - 1)
        same(x + 1, here + 1)
    with fault("aten::sum.dim_IntList", lambda x, dim, keepdim=False, dtype=None: x.mean(dim)):
        same(x.sum(0), here.mean(0))
        same(x.amax(0), here.amax(0))

    def broken(*args, **kwargs):
        raise KeyError("broken")

    with fault("aten::gelu_backward", broken):
        raises(KeyError, "broken", F.gelu(b).sum().backward)
    for name, words in (
        ("aten::linear", "never reaches"), ("aten::nosuch", "no operator"), ("aten::gelu.nosuch", "no operator"),
        ("gelu", "no operator"),
    ):
        raises(ValueError, words, fault(name, broken).__enter__)

    with slow_precision("aten::mm", torch.bfloat16):
        low = (here.bfloat16() @ here.bfloat16()).float()
        same(x @ x, low)
        same(torch.mm(x, x, out=torch.empty(4, 4, device=npu)), low)
        same(x.double().mm(x.double()), low.double())
        assert not torch.equal(low, here @ here)
        same(torch.addmm(x, x, x), torch.addmm(here, here, here))
    same(x @ x, here @ here)

    # Modes see the program's calls, and none that the device makes inside.
    functions, operators = [], []

    class Functions(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            functions.append(function.__name__)
            return function(*args, **(kwargs or {}))

    class Operators(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            operators.append(function.name())
            return function(*args, **(kwargs or {}))

    def program(v):
        functions.clear(), operators.clear()
        with Operators():
            loss = F.gelu(F.linear(v, v)).sum()
            engine = torch.autograd._engine_run_backward
            with Functions():
                loss = loss * 2
                engine((loss,), (torch.ones_like(loss),), False, False, (), allow_unreachable=True, accumulate_grad=True)
        return list(functions), list(operators)

    seen = program(b)
    assert seen == program(a), (seen, program(a))
    assert "aten::mm" in seen[1] and "aten::gelu_backward" in seen[1]
    assert all("empty" not in name and "set_" not in name for name in seen[0] + seen[1]), seen
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (x @ x).dtype == torch.float32
    """)
