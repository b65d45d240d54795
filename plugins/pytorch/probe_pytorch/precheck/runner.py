"""The runner that executes recorded calls of PyTorch, on a device and as the reference on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from functools import partial
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
from probe_pytorch.precheck.failures import raise_memory_errors
from probe_pytorch.precheck.rules import rules

if TYPE_CHECKING:
    import numpy as np
    import torch

    from probe_pytorch.precheck.execution import CallSide
    from probe_pytorch.precheck.memory import MemoryNeed
    from probe_pytorch.precheck.prepared_call import PreparedCall
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
        from probe_pytorch.precheck.prepared_call import PreparedCall, derive_call_seed
        from probe_pytorch.precheck.preparing import restore_arguments, turn_off_randomness
        from probe_pytorch.precheck.raising import iterate_tensors, narrow_to_autocast

        api = call.api
        if api in rules("not_run"):
            raise NotRun(describe_unlisted(call.name))
        reference = self._create_reference(call)
        function, reference_function, notes = self._find_functions(call, reference)
        arguments = self._rebuilder.rebuild_arguments(call)
        notes += turn_off_randomness(api, arguments)
        restore_arguments(api, arguments, call)
        with_gradients = call.backward is not None and "out" not in arguments.keywords
        self._limit_memory(call, reference_function, arguments, with_gradients)
        seed = derive_call_seed(self._options.seed, call.name)
        prepared = PreparedCall(call, reference, function, reference_function, arguments, seed, with_gradients)

        device, autocast = self._run_device(prepared)
        conversion = prepared.find_conversion(device, autocast)
        bench = prepared.run_function(reference_function, arguments, conversion)
        outputs = Outputs(
            bench=prepared.select_outputs(bench.output),
            device=prepared.select_outputs(narrow_to_autocast(device.output, autocast)),
        )
        backward: Outputs | Skipped | None
        try:
            backward, gradients, of_device, of_bench = self._run_backward(prepared, device, bench, autocast)
        except Exception as error:  # torch may raise anything; the forward is judged nevertheless
            backward, gradients, of_device, of_bench = Skipped(format_one_line(error)), (), None, None
        reproduction_data = ReproductionData(
            arguments, gradients, device, bench, of_device, of_bench, conversion, autocast, reference is not None
        )
        result_dtypes = [tensor.dtype for tensor in iterate_tensors(device.output)]
        run_perturbed = partial(prepared.run_perturbed, conversion, result_dtypes, gradients, self._options.seed)
        is_random = rules.is_random(api, arguments.keywords)
        return Outcome(outputs, backward, is_random, notes, reproduction_data, moved=run_perturbed)

    def _create_reference(self, call: Call) -> Any:
        """Return the definition of a plugin for an API; None if there is none."""
        spec = self._references.get(call.name.rpartition(".")[0])
        return None if spec is None else spec.make()

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
        from probe_pytorch.precheck.prepared_call import PreparedCall
        from probe_pytorch.precheck.preparing import (
            draws_random_numbers,
            list_recorded_dtypes,
            restore_arguments,
            turn_off_randomness,
        )
        from probe_pytorch.precheck.raising import iterate_tensors, list_autocast_candidates
        from probe_pytorch.precheck.replay import RANDOM, UNINITIALIZED_MEMORY, ReplayPlan, replay

        api = call.api
        if api in rules("not_run") and api != "to":
            raise NotRun(UNINITIALIZED_MEMORY)
        _refuse_random(call, RANDOM)
        reference = self._create_reference(call)
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
            side, autocast = self._run_device(PreparedCall(call, reference, function, bench_function, arguments, 0))
            return autocast, any(tensor.dtype is autocast for tensor in iterate_tensors(side.output))

        plan = ReplayPlan(
            bench_function,
            find_autocast,
            prepare,
            getattr(reference, "compare_outputs", None),
            _find_gradient_output(call, reference),
            self._options.is_ours,
            limit_memory,
        )
        return replay(call, plan, self._load_exact_rebuilder(), self._options.seed if moved else None)

    def _load_exact_rebuilder(self) -> RecordedRebuilder:
        """Return the builder of exactly the recorded arguments, which is created once."""
        from probe_pytorch.precheck.rebuild import load_any
        from probe_pytorch.precheck.replay import RecordedRebuilder

        if self._exact is None:
            directory = self._options.dump.parent / TENSOR_DIRECTORY
            self._exact = RecordedRebuilder(stored_in(directory, load_any), self._options.seed, get_max_input_bytes())
        return self._exact

    @raise_memory_errors()
    def run_sent(self, call: Call, tensors: Callable[[Value], np.ndarray[Any, Any]]) -> tuple[Outcome, Any]:
        """Run a call that a training sent, from exactly the sent inputs, and return what was sent as well.

        Raises:
            NotRun: The call is of an API that is not run, or draws random numbers.
            Unbuildable: An argument or an output was sent without its data, or cannot be read.
        """
        from probe_pytorch.precheck.outputs import convert_to_arrays
        from probe_pytorch.precheck.prepared_call import PreparedCall, derive_call_seed
        from probe_pytorch.precheck.preparing import (
            RANDOM,
            arrange_leaves,
            draws_random_numbers,
            list_sent_outputs,
            restore_arguments,
            turn_off_randomness,
        )
        from probe_pytorch.precheck.raising import narrow_to_autocast
        from probe_pytorch.precheck.replay import RecordedRebuilder

        api = call.api
        if api in rules("not_run"):
            raise NotRun(describe_unlisted(call.name))
        _refuse_random(call, RANDOM)
        reference = self._create_reference(call)
        function, reference_function, notes = self._find_functions(call, reference)
        rebuilder = RecordedRebuilder(tensors, self._options.seed, get_max_input_bytes())
        arguments = rebuilder.rebuild_arguments(call)
        if draws_random_numbers(api, arguments) or turn_off_randomness(api, arguments):
            raise NotRun(RANDOM)
        restore_arguments(api, arguments, call)
        self._limit_memory(call, reference_function, arguments, False)
        sent = list_sent_outputs(call, rebuilder)
        seed = derive_call_seed(self._options.seed, call.name)
        prepared = PreparedCall(call, reference, function, reference_function, arguments, seed, as_recorded=True)
        device, autocast = self._run_device(prepared)
        conversion = prepared.find_conversion(device, autocast)
        device_output = narrow_to_autocast(device.output, autocast)
        bench_output = prepared.run_function(reference_function, arguments, conversion).output
        outputs = Outputs(prepared.select_outputs(bench_output), prepared.select_outputs(device_output))
        sent_arrays = arrange_leaves(
            convert_to_arrays(narrow_to_autocast(sent, autocast)), convert_to_arrays(device_output)
        )
        run_perturbed = partial(prepared.run_perturbed, conversion, (), (), self._options.seed)
        return Outcome(outputs, notes=notes, moved=run_perturbed), prepared.select_arrays(sent_arrays)

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

    def _run_device(self, prepared: PreparedCall) -> tuple[CallSide, torch.dtype | None]:
        """Run a call on the device, under autocast if only that gives the recorded dtypes of its outputs.

        Autocast is also used if the backward fails without it.
        """
        from probe_pytorch.precheck.execution import has_backward
        from probe_pytorch.precheck.preparing import list_recorded_dtypes
        from probe_pytorch.precheck.raising import DtypeConversion, iterate_tensors, list_autocast_candidates

        function, arguments = prepared.function, prepared.arguments
        recorded = list_recorded_dtypes(prepared.call)
        candidates = list_autocast_candidates(arguments, recorded)
        failure: Exception | None = None
        fallback: tuple[CallSide, torch.dtype | None] | None = None
        for autocast in candidates:
            try:
                side = prepared.run_function(function, arguments, DtypeConversion(), self._device, autocast)
            except Exception as error:
                failure = failure or error
                continue
            dtypes = [t.dtype for t in iterate_tensors(side.output) if t.is_floating_point()]
            is_alike = not recorded or dtypes[: len(recorded)] == recorded
            if len(candidates) == 1 or (is_alike and (not prepared.with_gradients or has_backward(side))):
                return side, autocast
            fallback = fallback or (side, autocast)
        if fallback is None:
            assert failure is not None
            raise failure
        return fallback

    @raise_memory_errors()
    def _run_backward(
        self, prepared: PreparedCall, device: CallSide, bench: CallSide, autocast: torch.dtype | None
    ) -> tuple[Outputs | Skipped | None, tuple[tuple[int, Any], ...], Any, Any]:
        """Run the backward of both sides.

        Returns:
            The gradients of both sides as arrays, or the reason for skipping them; the gradients of the outputs
            with the numbers of the outputs; the gradients of the device and of the reference as tensors.
        """
        from probe_pytorch.precheck.execution import pair_gradients, run_backward
        from probe_pytorch.precheck.outputs import convert_to_arrays
        from probe_pytorch.precheck.raising import iterate_tensors, narrow_to_autocast

        call = prepared.call
        if call.backward is None:
            return None, (), None, None
        if "out" in prepared.arguments.keywords:
            return Skipped(OUT), (), None, None
        if call.api in rules("no_backward"):
            return Skipped(NO_BACKWARD), (), None, None
        recorded = self._rebuilder.rebuild_gradients(call)
        if all(gradient is None for gradient in recorded):
            return Skipped(NO_RECORDED_GRADIENT_TEXT), (), None, None
        outputs, chosen = pair_gradients(device, recorded, _find_gradient_output(call, prepared.reference))
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
        of_device, of_bench = run_backward(device, outputs, gradients), run_backward(bench, outputs, gradients)
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


def _find_gradient_output(call: Call, reference: Any) -> int | None:
    """Return the number of the output whose gradient was recorded; None if that is every output."""
    number: int | None = getattr(reference, "grad_output", None)
    return rules("gradient_of_output").get(call.api) if number is None else number


def _refuse_random(call: Call, reason: str) -> None:
    """Raise NotRun for a call that draws random numbers, before its tensors are read."""
    from probe_pytorch.precheck.preparing import read_recorded_keywords

    if "dropout" not in call.api and rules.is_random(call.api, read_recorded_keywords(call)):
        raise NotRun(reason)


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
