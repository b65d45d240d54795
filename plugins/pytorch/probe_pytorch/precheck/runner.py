"""The runner that executes recorded calls of PyTorch, on a device and as the reference on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from probe_precheck.api import Call, Message, NotRun, Outcome, Outputs, RunnerOptions, Skipped
from probe_precheck.memory import get_max_call_bytes, get_max_input_bytes
from probe_precheck.model import NO_GRADIENT_TEXT, NO_RECORDED_GRADIENT_TEXT, describe_unlisted, format_one_line
from probe_precheck.rebuild import check_call_memory
from probe_precheck.replaying import Replay
from probe_precheck.rules import read_package_text
from probe_recording.reading.tensors import open_tensors as stored_in

from probe_core.errors import UserError
from probe_core.model import Value
from probe_core.store.files import TENSOR_DIRECTORY
from probe_pytorch.precheck.outputs import raise_memory_errors
from probe_pytorch.precheck.rules import rules

if TYPE_CHECKING:
    import numpy as np
    import torch

    from probe_pytorch.precheck.execution import CallSide
    from probe_pytorch.precheck.memory import MemoryNeed
    from probe_pytorch.precheck.raising import DtypeConversion
    from probe_pytorch.precheck.rebuild import Arguments
    from probe_pytorch.precheck.replay import RecordedRebuilder

OUT = "function with out=... arguments don't support automatic differentiation, skip backward."
NO_BACKWARD = "function backward result is None, skip backward."
RAN_COMPOSED_DEFINITION = Message(
    "没有NPU，设备侧运行的是该融合算子的组合实现。",
    "There is no NPU: the device ran the composed definition.",
)


class PyTorchRunner:
    """The runner of PyTorch, which imports torch when it is opened.

    Args:
        instead: Functions to run on the device instead of torch's, such as kernels under development or
            faults in tests. The keys are names of records without count, such as ``Functional.softmax``.
    """

    def __init__(self, instead: Mapping[str, Callable[..., Any]] | None = None) -> None:
        self._instead = instead or {}
        rules.load()  # here, so that a file missing in the installation is reported before any call is run
        read_package_text(__package__, "script.txt")

    def apis(self) -> Set[str]:
        """Return the names, without scope, of all APIs that can be recorded."""
        import yaml

        text = (files("probe_pytorch") / "capture" / "support_wrap_ops.yaml").read_text("utf-8")
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        return {name for names in yaml.load(text, loader).values() for name in names or ()}

    def open(self, options: RunnerOptions) -> str:
        """Prepare torch, the device, the recorded data and the references of plugins.

        Returns:
            The name of the device.

        Raises:
            UserError: torch is not installed, or there is no such device.
        """
        try:
            import torch
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "torch":
                raise
            raise UserError(
                "Running APIs needs torch, which is not installed.", "Install it: pip install torch"
            ) from None
        from probe_pytorch.precheck.memory import MemoryEstimator, select_device
        from probe_pytorch.precheck.rebuild import Rebuilder, load_any

        torch.set_num_threads(options.threads)
        self._options = options
        self._device = select_device(options.device, options.jit_compile)
        directory = options.dump.parent / TENSOR_DIRECTORY
        self._rebuilder = Rebuilder(stored_in(directory, load_any), options.seed, get_max_input_bytes())
        self._references = reference_specs()
        self._exact: RecordedRebuilder | None = None
        self._estimator = MemoryEstimator()
        self._max_call_bytes = get_max_call_bytes()
        return str(self._device)

    # -- running ---------------------------------------------------------------------------

    @raise_memory_errors()
    def run(self, call: Call) -> Outcome:
        """Run one call on the device and as the reference.

        Raises:
            NotRun: The call is of an API that is not run.
            Unbuildable: An argument cannot be rebuilt.
        """
        from probe_pytorch.precheck.error_data import ReproductionData
        from probe_pytorch.precheck.execution import create_side, run_forward
        from probe_pytorch.precheck.outputs import convert_to_arrays
        from probe_pytorch.precheck.preparing import restore_arguments, turn_off_randomness
        from probe_pytorch.precheck.raising import find_conversion, iterate_tensors, narrow_to_autocast
        from probe_pytorch.precheck.random_tensors import create_generator

        api = call.api
        if api in rules("not_run"):
            raise NotRun(describe_unlisted(call.name))
        spec = self._references.get(call.name.rpartition(".")[0])
        reference = None if spec is None else spec.make()
        function, bench_function, notes = self._find_functions(call, reference)
        arguments = self._rebuilder.rebuild_arguments(call)
        notes += turn_off_randomness(api, arguments)
        restore_arguments(api, arguments, call)
        with_gradients = call.backward is not None and "out" not in arguments.keywords
        self._limit_memory(call, bench_function, arguments, with_gradients)
        seed = create_generator(self._options.seed, call.name).initial_seed() % (1 << 62)

        device, autocast = self._run_device(call, function, arguments, with_gradients, seed)
        is_narrow = any(tensor.dtype is autocast for tensor in iterate_tensors(device.output))
        raising = find_conversion(api, arguments, autocast, is_narrow)
        import torch

        bench = create_side(arguments, torch.device("cpu"), raising, with_gradients)
        run_forward(bench_function, bench, api, None, torch.device("cpu"), seed)
        outputs = Outputs(
            bench=convert_to_arrays(bench.output), device=convert_to_arrays(narrow_to_autocast(device.output, autocast))
        )
        compared = getattr(reference, "compare_outputs", None)
        if compared is not None:
            outputs = _select_outputs(outputs, compared)
        chosen = getattr(reference, "grad_output", None)
        backward: Outputs | Skipped | None
        try:
            backward, gradients, of_device, of_bench = self._run_backward(
                call, arguments, device, bench, autocast, chosen
            )
        except Exception as error:  # torch may raise anything; the forward is judged nevertheless
            backward, gradients, of_device, of_bench = Skipped(format_one_line(error)), (), None, None
        reproduction_data = ReproductionData(
            arguments, gradients, device, bench, of_device, of_bench, raising, autocast, reference is not None
        )

        def run_perturbed() -> Outcome:
            from probe_pytorch.precheck.execution import run_backward
            from probe_pytorch.precheck.replay import perturb_call

            result_dtypes = [tensor.dtype for tensor in iterate_tensors(device.output)]
            generator = create_generator(self._options.seed, f"{call.name}/moved")
            function, parts, change = perturb_call(api, bench_function, arguments, raising, result_dtypes, generator)
            side = create_side(parts, torch.device("cpu"), change, with_gradients)
            run_forward(function, side, api, None, torch.device("cpu"), seed)
            result = convert_to_arrays(side.output)
            outputs = (
                Outputs(result, result) if compared is None else _select_outputs(Outputs(result, result), compared)
            )
            if not gradients:
                return Outcome(outputs)
            numbers, output_gradients = zip(*gradients)
            input_gradients = convert_to_arrays(
                run_backward(side, numbers, [change.convert_tensor(gradient) for gradient in output_gradients])
            )
            return Outcome(outputs, Outputs(input_gradients, input_gradients))

        is_random = rules.is_random(api, arguments.keywords)
        return Outcome(outputs, backward, is_random, notes, reproduction_data, moved=run_perturbed)

    @raise_memory_errors()
    def replay(self, call: Call, *, moved: bool = False) -> Replay:
        """Compute one call in higher precision, from exactly the recorded inputs.

        Args:
            call: The call.
            moved: True to change each element of the inputs first, by a random part of its rounding.

        Raises:
            NotRun: Nothing is known to expect of the call, for example because it draws random numbers.
            Unbuildable: An input cannot be rebuilt, for example because its values were not recorded.
        """
        from probe_pytorch.precheck.preparing import (
            draws_random_numbers,
            list_recorded_dtypes,
            read_recorded_keywords,
            restore_arguments,
            turn_off_randomness,
        )
        from probe_pytorch.precheck.raising import iterate_tensors, list_autocast_candidates
        from probe_pytorch.precheck.rebuild import load_any
        from probe_pytorch.precheck.replay import RANDOM, UNINITIALIZED_MEMORY, RecordedRebuilder, ReplayPlan, replay

        api = call.api
        if api in rules("not_run") and api != "to":
            raise NotRun(UNINITIALIZED_MEMORY)
        if "dropout" not in api and rules.is_random(api, read_recorded_keywords(call)):  # before tensors are read
            raise NotRun(RANDOM)
        spec = self._references.get(call.name.rpartition(".")[0])
        reference = None if spec is None else spec.make()
        function, bench_function, _ = self._find_functions(call, reference)

        def prepare(arguments: Arguments) -> None:
            if draws_random_numbers(api, arguments) or turn_off_randomness(api, arguments):
                raise NotRun(RANDOM)
            restore_arguments(api, arguments, call)

        def limit_memory(arguments: Arguments, raising: DtypeConversion, with_gradients: bool) -> None:
            need = self._need(call, bench_function, arguments, raising, with_gradients)
            check_call_memory(need.replayed, self._max_call_bytes)

        def find_autocast(arguments: Arguments) -> tuple[torch.dtype | None, bool]:
            if list_autocast_candidates(arguments, list_recorded_dtypes(call)) == [None]:
                return None, False
            side, autocast = self._run_device(call, function, arguments, False, 0)
            return autocast, any(tensor.dtype is autocast for tensor in iterate_tensors(side.output))

        chosen = getattr(reference, "grad_output", None)
        plan = ReplayPlan(
            bench_function,
            find_autocast,
            prepare,
            getattr(reference, "compare_outputs", None),
            rules("gradient_of_output").get(api) if chosen is None else chosen,
            self._options.is_ours,
            limit_memory,
        )
        if self._exact is None:
            directory = self._options.dump.parent / TENSOR_DIRECTORY
            self._exact = RecordedRebuilder(stored_in(directory, load_any), self._options.seed, get_max_input_bytes())
        return replay(call, plan, self._exact, self._options.seed if moved else None)

    @raise_memory_errors()
    def run_sent(self, call: Call, tensors: Callable[[Value], np.ndarray[Any, Any]]) -> tuple[Outcome, Any]:
        """Run a call that a training sent, from exactly the sent inputs, and return what was sent as well.

        Raises:
            NotRun: The call is of an API that is not run, or draws random numbers.
            Unbuildable: An argument or an output was sent without its data, or cannot be read.
        """
        import torch

        from probe_pytorch.precheck.execution import create_side, run_forward
        from probe_pytorch.precheck.outputs import convert_to_arrays
        from probe_pytorch.precheck.preparing import (
            RANDOM,
            arrange_leaves,
            draws_random_numbers,
            list_sent_outputs,
            read_recorded_keywords,
            restore_arguments,
            turn_off_randomness,
        )
        from probe_pytorch.precheck.raising import find_conversion, iterate_tensors, narrow_to_autocast
        from probe_pytorch.precheck.random_tensors import create_generator
        from probe_pytorch.precheck.replay import RecordedRebuilder, perturb_call

        api = call.api
        if api in rules("not_run"):
            raise NotRun(describe_unlisted(call.name))
        if "dropout" not in api and rules.is_random(api, read_recorded_keywords(call)):  # before tensors are read
            raise NotRun(RANDOM)
        spec = self._references.get(call.name.rpartition(".")[0])
        reference = None if spec is None else spec.make()
        function, bench_function, notes = self._find_functions(call, reference)
        rebuilder = RecordedRebuilder(tensors, self._options.seed, get_max_input_bytes())
        arguments = rebuilder.rebuild_arguments(call)
        if draws_random_numbers(api, arguments) or turn_off_randomness(api, arguments):
            raise NotRun(RANDOM)
        restore_arguments(api, arguments, call)
        self._limit_memory(call, bench_function, arguments, False)
        sent = list_sent_outputs(call, rebuilder)
        seed = create_generator(self._options.seed, call.name).initial_seed() % (1 << 62)
        device, autocast = self._run_device(call, function, arguments, False, seed, as_recorded=True)
        is_narrow = any(tensor.dtype is autocast for tensor in iterate_tensors(device.output))
        raising = find_conversion(api, arguments, autocast, is_narrow)
        cpu = torch.device("cpu")
        compared = getattr(reference, "compare_outputs", None)

        def compute(function: Callable[..., Any], arguments: Arguments, change: DtypeConversion) -> Any:
            side = create_side(arguments, cpu, change, False)
            run_forward(function, side, api, None, cpu, seed, as_recorded=True)
            return select_outputs(convert_to_arrays(side.output))

        def run_perturbed() -> Outcome:
            generator = create_generator(self._options.seed, f"{call.name}/moved")
            result = compute(*perturb_call(api, bench_function, arguments, raising, (), generator))
            return Outcome(Outputs(result, result))

        def select_outputs(value: Any) -> Any:
            return value if compared is None else _select_outputs(Outputs(value, value), compared).bench

        device_output = convert_to_arrays(narrow_to_autocast(device.output, autocast))
        outputs = Outputs(compute(bench_function, arguments, raising), select_outputs(device_output))
        sent_output = select_outputs(
            arrange_leaves(convert_to_arrays(narrow_to_autocast(sent, autocast)), device_output)
        )
        return Outcome(outputs, notes=notes, moved=run_perturbed), sent_output

    def _need(
        self,
        call: Call,
        function: Callable[..., Any],
        arguments: Arguments,
        raising: DtypeConversion,
        with_gradients: bool,
    ) -> MemoryNeed:
        """Return the memory that a call needs."""
        name = call.name.rpartition(".")[0]
        return self._estimator.need(name, function, arguments, raising, with_gradients=with_gradients)

    def _limit_memory(
        self, call: Call, function: Callable[..., Any], arguments: Arguments, with_gradients: bool
    ) -> None:
        """Check that both sides together need no more memory for a call than one call may use.

        Raises:
            Unbuildable: They need more.
        """
        from probe_pytorch.precheck.raising import find_conversion

        raising = find_conversion(call.api, arguments, None)
        need = self._need(call, function, arguments, raising, with_gradients)
        check_call_memory(need.compared, self._max_call_bytes)

    def _find_functions(
        self, call: Call, reference: Any
    ) -> tuple[Callable[..., Any], Callable[..., Any], tuple[Message, ...]]:
        """Return the function of the device, the function of the reference, and notes on them."""
        from probe_pytorch.precheck.apis import NPU, find_function, has_npu_function
        from probe_pytorch.precheck.raising import wrap_definition

        scope, api, _ = call.parts
        if scope == NPU and reference is None:
            raise NotRun(f"There is not bench function {api}. SKIP.")
        if scope == NPU and not has_npu_function(api):
            return wrap_definition(reference.forward), reference.forward, (RAN_COMPOSED_DEFINITION,)
        function = find_function(scope, api)
        instead = self._instead.get(f"{scope}.{api}")
        if instead is not None:
            return instead, function if reference is None else reference.forward, ()
        return function, function if reference is None else reference.forward, ()

    def _run_device(
        self,
        call: Call,
        function: Callable[..., Any],
        arguments: Arguments,
        with_gradients: bool,
        seed: int,
        *,
        as_recorded: bool = False,
    ) -> tuple[CallSide, torch.dtype | None]:
        """Run a call on the device, under autocast if only that gives the recorded dtypes of its outputs.

        Autocast is also used if the backward fails without it.
        """
        from probe_pytorch.precheck.execution import create_side, has_backward, run_forward
        from probe_pytorch.precheck.preparing import list_recorded_dtypes
        from probe_pytorch.precheck.raising import DtypeConversion, iterate_tensors, list_autocast_candidates

        recorded = list_recorded_dtypes(call)
        candidates = list_autocast_candidates(arguments, recorded)
        failure: Exception | None = None
        fallback: tuple[CallSide, torch.dtype | None] | None = None
        for autocast in candidates:
            side = create_side(arguments, self._device, DtypeConversion(), with_gradients)
            try:
                run_forward(function, side, call.api, autocast, self._device, seed, as_recorded=as_recorded)
            except Exception as error:
                failure = failure or error
                continue
            dtypes = [t.dtype for t in iterate_tensors(side.output) if t.is_floating_point()]
            is_alike = not recorded or dtypes[: len(recorded)] == recorded
            if len(candidates) == 1 or (is_alike and (not with_gradients or has_backward(side))):
                return side, autocast
            fallback = fallback or (side, autocast)
        if fallback is None:
            assert failure is not None
            raise failure
        return fallback

    @raise_memory_errors()
    def _run_backward(
        self,
        call: Call,
        arguments: Arguments,
        device: CallSide,
        bench: CallSide,
        autocast: torch.dtype | None,
        grad_output: int | None,
    ) -> tuple[Outputs | Skipped | None, tuple[tuple[int, Any], ...], Any, Any]:
        from probe_pytorch.precheck.execution import pair_gradients, run_backward
        from probe_pytorch.precheck.outputs import convert_to_arrays
        from probe_pytorch.precheck.raising import iterate_tensors, narrow_to_autocast

        if call.backward is None:
            return None, (), None, None
        if "out" in arguments.keywords:
            return Skipped(OUT), (), None, None
        if call.api in rules("no_backward"):
            return Skipped(NO_BACKWARD), (), None, None
        recorded = self._rebuilder.rebuild_gradients(call)
        if all(gradient is None for gradient in recorded):
            return Skipped(NO_RECORDED_GRADIENT_TEXT), (), None, None
        if grad_output is None:
            grad_output = rules("gradient_of_output").get(call.api)
        outputs, chosen = pair_gradients(device, recorded, grad_output)
        if not outputs:
            return Skipped(NO_GRADIENT_TEXT), (), None, None
        flat = list(iterate_tensors(device.output))
        gradients = []
        for i, k in zip(outputs, chosen):
            gradient = recorded[k]
            assert gradient is not None
            if gradient.shape != flat[i].shape:  # for example after indexing by a random mask
                gradient = self._rebuilder.draw_gradient(call, k, flat[i].shape)
            gradients.append(gradient)
        of_device = run_backward(device, outputs, gradients)
        of_bench = run_backward(bench, outputs, gradients)
        results = Outputs(
            bench=convert_to_arrays(of_bench), device=convert_to_arrays(narrow_to_autocast(of_device, autocast))
        )
        return results, tuple(zip(outputs, gradients)), of_device, of_bench

    # -- saving ----------------------------------------------------------------------------

    def save(self, call: Call, outcome: Outcome) -> str:
        """Save the data of a failed call with a script that reproduces it, and return the script's path."""
        from probe_pytorch.precheck.error_data import ReproductionData, save

        assert self._options.error_directory is not None
        if not isinstance(outcome.kept, ReproductionData):
            return ""
        return str(save(call, outcome.kept, self._options.error_directory, self._device))


def _select_outputs(outputs: Outputs, numbers: tuple[int, ...]) -> Outputs:
    return Outputs(*([side[i] for i in numbers] if isinstance(side, list) else side for side in outputs))


def reference_specs() -> dict[str, Any]:
    """Return the references of all plugins by the name of the API, such as ``NPU.npu_linear``."""
    from probe_precheck.api import ReferenceSpec

    from probe_core.plugins.manager import Manager

    references: dict[str, Any] = {}
    for item in Manager().contributions("references"):
        spec = item.spec
        if isinstance(spec, ReferenceSpec) and spec.framework in ("", "pytorch"):
            references.setdefault(spec.api, spec)
    return references
