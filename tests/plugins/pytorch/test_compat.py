"""Each use of torch's private API, on the torch that is installed: what fails here names what a version changed."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from probe_pytorch import compat
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])
FIRST_TORCH_WITH_EXPORTS = (2, 3)
"""The first version whose exports need not be strict."""
VERSION = f"torch {torch.__version__}"
pytestmark = pytest.mark.filterwarnings("ignore")


class Functions(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


class Operators(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


def test_the_running_backward_pass_has_a_number() -> None:
    found: list[int] = []
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    y.register_hook(lambda gradient: found.append(compat.get_graph_task()))
    assert compat.get_graph_task() == -1, VERSION
    y.sum().backward()
    assert found[0] >= 0, VERSION


def test_nodes_are_numbered_in_the_order_they_are_made() -> None:
    x = torch.ones(2, requires_grad=True)
    first = x * 2
    between = compat.get_sequence_number()
    second = first + 1
    assert compat.get_node_number(first.grad_fn) < between <= compat.get_node_number(second.grad_fn), VERSION


def test_functions_that_torch_makes_of_operators() -> None:
    assert callable(compat.get_low_level_functions().lstm), VERSION
    assert compat.is_torch_function("addmm") and not compat.is_torch_function("save"), VERSION


def test_quiet_is_quiet_for_modes_of_both_kinds() -> None:
    with Functions() as functions, Operators() as operators:
        with compat.disable_modes():
            torch.ones(2) + 1
        assert not functions.seen and not operators.seen, VERSION
        torch.ones(2) + 1
    assert functions.seen and operators.seen, VERSION


def test_a_warning_of_an_operator_names_no_line_of_torch() -> None:
    class Running(Operators):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return compat.get_operator_function(func)(*args, **(kwargs or {}))

    with warnings.catch_warnings(record=True) as caught, Running():
        warnings.simplefilter("always")
        torch.add(torch.ones(3), 1, out=torch.empty(2))
    assert [warning.filename for warning in caught] == [__file__], VERSION


def test_the_caller_of_an_operator_is_no_line_of_torch() -> None:
    callers = []

    class Called(Operators):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            callers.append(compat.find_dispatch_caller(sys._getframe(1)).f_code.co_filename)
            return func(*args, **(kwargs or {}))

    with Called():
        torch.ones(1)
    assert callers == [__file__], VERSION


def test_a_mode_goes_below_others_and_comes_out_from_under_them() -> None:
    lower, upper = Functions(), Functions()
    with upper:
        compat.enter_below(lower)
        assert compat.list_function_modes() == [lower, upper], VERSION
        torch.ones(2)
        compat.take_out(lower)
        assert compat.list_function_modes() == [upper], VERSION
        compat.take_out(lower)  # it is not there
    assert torch.ones in lower.seen and torch.ones in upper.seen, VERSION
    assert compat.list_function_modes() == []


def test_a_dispatch_mode_goes_below_others() -> None:
    lower, upper = Operators(), Operators()
    with upper:
        compat.enter_dispatch_below(lower)
        torch.ones(2) + 1
        compat.take_dispatch_out(lower)
        seen = len(lower.seen)
        torch.ones(2) + 1
    assert seen and len(lower.seen) == seen and len(upper.seen) > seen, VERSION


@pytest.mark.parametrize(
    ("tensor", "dense"),
    [(torch.zeros(2, 3), True), (torch.zeros(2, 3).t(), True), (torch.zeros(4, 4)[:, ::2], False),
     (torch.zeros(3).expand(2, 3), False), (torch.zeros(2, 3, 4).permute(2, 0, 1), True), (torch.zeros(()), True)],
)  # fmt: skip
def test_dense(tensor: torch.Tensor, dense: bool) -> None:
    assert compat.is_dense(tensor) is dense


def test_functions_that_hand_themselves_over_and_their_copies() -> None:
    assert compat.is_self_dispatching(F.relu) and not compat.is_self_dispatching(F.linear), VERSION
    copy = compat.drop_dispatch_check(F.relu)
    assert compat.drop_dispatch_check(F.linear) is None and compat.drop_dispatch_check(len) is None
    with Functions() as mode:
        assert torch.equal(copy(torch.tensor([-1.0, 2.0])), torch.tensor([0.0, 2.0]))
    assert F.relu not in mode.seen and torch.relu in mode.seen, VERSION


def test_tensors_without_values_of_their_own() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        assert compat.is_fake(torch.ones(2)), VERSION
    assert not compat.is_fake(torch.ones(2))
    seen = []
    torch.vmap(lambda x: seen.append(compat.is_transformed(x)) or x)(torch.ones(2, 2))
    assert seen == [True] and not compat.is_transformed(torch.ones(2)), VERSION
    freed = torch.ones(4)
    freed.untyped_storage().resize_(0)
    assert compat.is_freed(freed) and not compat.is_freed(torch.ones(4)) and not compat.is_freed(torch.ones(0))


def test_tracing_is_known() -> None:
    seen = []
    torch.jit.trace(lambda x: seen.append(compat.is_tracing()) or x + 1, torch.ones(1), check_trace=False)
    assert seen == [True] and not compat.is_tracing(), VERSION


def test_sparse_values() -> None:
    indices = torch.tensor([[0, 0, 1]])
    sparse = torch.sparse_coo_tensor(indices, torch.tensor([1.0, 2.0, 3.0]), (2,))
    assert compat.get_stored_values(sparse).tolist() == [1.0, 2.0, 3.0], VERSION


def test_several_that_force_eager_leave_what_was_there_before() -> None:
    import torch._dynamo
    from torch._dynamo.testing import CompileCounter

    def graphs() -> int:
        torch._dynamo.reset()
        counter = CompileCounter()
        with torch._dynamo.config.patch(disable=False):
            torch.compile(lambda x: x + 1, backend=counter)(torch.ones(2))
        return counter.frame_count

    assert graphs() == 1, VERSION
    first, second = compat.force_eager(), compat.force_eager()
    assert graphs() == 0, VERSION
    first()  # not in the order of a stack
    assert graphs() == 0
    second()
    assert graphs() == 1, VERSION


def test_a_global_forward_hook_is_told_the_keywords_of_the_call() -> None:
    found: list[Any] = []

    class Scaled(torch.nn.Module):
        def forward(self, x: torch.Tensor, *, by: int = 1) -> torch.Tensor:
            return x * by

    def before(module: Any, args: Any) -> None:
        found.append(compat.read_keywords(sys._getframe(1)))

    with torch.nn.modules.module.register_module_forward_pre_hook(before):
        Scaled()(torch.ones(1), by=3)
        Scaled()(torch.ones(1))
    before(None, ())
    assert found == [{"by": 3}, {}, {}], VERSION


def test_torch_says_that_it_exports() -> None:
    found: list[bool] = []

    class Told(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found.append(compat.is_exporting())
            return x + 1

    strict = {"strict": False} if FIRST_TORCH_WITH_EXPORTS <= TORCH else {}
    torch.export.export(Told(), (torch.ones(1),), **strict)
    Told()(torch.ones(1))
    is_told = hasattr(torch.compiler, "is_exporting") or hasattr(torch.compiler, "_is_compiling_flag")
    assert found[0] is is_told and found[-1] is False, VERSION


def test_a_compiled_module_is_known() -> None:
    made = torch.compile(torch.nn.Linear(2, 2), backend="aot_eager")
    in_place = torch.nn.Linear(2, 2)
    assert compat.is_compiled(made) and not compat.is_compiled(in_place), VERSION
    in_place.compile(backend="aot_eager")
    assert compat.is_compiled(in_place), VERSION


def test_functions_that_ask_torch_overrides_run_without_asking() -> None:
    for function in (torch.nn.init.normal_, torch.nn.init.uniform_, torch.nn.init.constant_):
        with Functions() as seen:
            bare = compat.drop_dispatch_check(function)
            assert bare is not None, VERSION
            bare(torch.empty(2), 0.0)
        assert function not in seen.seen and seen.seen, VERSION


def test_the_class_of_gradient_scalers_has_the_method_that_is_wrapped() -> None:
    assert callable(compat.get_grad_scaler().unscale_)
    assert issubclass(torch.cuda.amp.GradScaler, compat.get_grad_scaler())


def test_allocation_tally_holds_the_memory_of_live_meta_tensors_torch_2_13() -> None:
    given = torch.empty(1000, device="meta")
    with compat.AllocationTally([given]) as tally:
        made = torch.full([1000], 1.0)
        assert made.is_meta and tally.peak_bytes == 4000
        del made
        given.exp()
    assert tally.peak_bytes == 4000


def test_views_share_the_count_of_writes_and_the_storage() -> None:
    tensor = torch.zeros(4)
    view = tensor.view(2, 2)[1]
    assert compat.get_version(view) == 0, VERSION
    tensor.add_(1)
    assert compat.get_version(view) == compat.get_version(tensor) == 1, VERSION
    reference = compat.get_storage_reference(tensor)
    assert compat.get_storage_key(view) == compat.get_storage_key(tensor) == reference.cdata != 0, VERSION
    assert compat.get_storage_key(torch.eye(2).to_sparse()) == 0, VERSION
    with torch.inference_mode():
        assert compat.get_version(torch.zeros(1)) is None, VERSION


@pytest.mark.parametrize("layout", ["jagged", "strided"])
def test_nested_tensors_have_parts(layout: str) -> None:
    if not hasattr(torch, layout):
        pytest.skip("this torch has no such layout")
    keywords = {} if layout == "strided" else {"layout": getattr(torch, layout)}  # since torch 2.2
    nested = torch.nested.nested_tensor([torch.ones(1), torch.ones(2)], **keywords)
    parts = compat.get_nested_parts(nested)
    assert parts["values"].tolist() == [1.0, 1.0, 1.0], VERSION
    assert len(parts) == 2, VERSION


def test_compiled_frames_are_counted() -> None:
    before = compat.count_compiled_frames()
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    assert compat.count_compiled_frames() > before, VERSION
