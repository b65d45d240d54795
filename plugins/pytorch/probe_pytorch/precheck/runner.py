"""The runner that executes recorded calls of PyTorch, on a device and as the reference on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from probe_precheck import (
    NEEDS_NONE,
    NOT_RECORDED,
    Call,
    Message,
    NotRun,
    Outcome,
    Outputs,
    Replay,
    RunnerOptions,
    Skipped,
    limit_call,
    max_call_bytes,
    max_input_bytes,
    one_line,
    package_text,
    unlisted,
)
from probe_recording import tensors_in as stored_in

from probe_core.errors import UserError
from probe_core.model import Value
from probe_core.store.files import TENSOR_DIRECTORY
from probe_pytorch.precheck.failures import memory_errors
from probe_pytorch.precheck.rules import rules

if TYPE_CHECKING:
    import numpy as np
    import torch

    from probe_pytorch.precheck.execution import Side
    from probe_pytorch.precheck.memory import MemoryNeed
    from probe_pytorch.precheck.raising import Raising
    from probe_pytorch.precheck.rebuild import Arguments
    from probe_pytorch.precheck.replay import RecordedOnly

OUT = "function with out=... arguments don't support automatic differentiation, skip backward."
NO_BACKWARD = "function backward result is None, skip backward."
COMPOSED = Message(
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
        package_text(__package__, "script.txt")

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
        from probe_pytorch.precheck.devices import device_for
        from probe_pytorch.precheck.memory import MemoryEstimator
        from probe_pytorch.precheck.rebuild import Rebuilder, load_any

        torch.set_num_threads(options.threads)
        self._options = options
        self._device = device_for(options.device, options.jit_compile)
        directory = options.dump.parent / TENSOR_DIRECTORY
        self._rebuilder = Rebuilder(stored_in(directory, load_any), options.seed, max_input_bytes())
        self._references = reference_specs()
        self._exact: RecordedOnly | None = None
        self._estimator = MemoryEstimator()
        self._max_call_bytes = max_call_bytes()
        return str(self._device)

    # -- running ---------------------------------------------------------------------------

    @memory_errors()
    def run(self, call: Call) -> Outcome:
        """Run one call on the device and as the reference.

        Raises:
            NotRun: The call is of an API that is not run.
            Unbuildable: An argument cannot be rebuilt.
        """
        from probe_pytorch.precheck.error_data import Kept
        from probe_pytorch.precheck.execution import run_forward, side_of
        from probe_pytorch.precheck.outputs import plain
        from probe_pytorch.precheck.preparing import restore_arguments, turn_off_randomness
        from probe_pytorch.precheck.raising import narrowed, raising_of, tensors_in
        from probe_pytorch.precheck.random_tensors import generator_for

        api = call.api
        if api in rules("not_run"):
            raise NotRun(unlisted(call.name))
        spec = self._references.get(call.name.rpartition(".")[0])
        reference = None if spec is None else spec.make()
        function, bench_function, notes = self._functions(call, reference)
        arguments = self._rebuilder.arguments(call)
        notes += turn_off_randomness(api, arguments)
        restore_arguments(api, arguments, call)
        with_gradients = call.backward is not None and "out" not in arguments.keywords
        self._limit_memory(call, bench_function, arguments, with_gradients)
        seed = generator_for(self._options.seed, call.name).initial_seed() % (1 << 62)

        device, autocast = self._run_device(call, function, arguments, with_gradients, seed)
        is_narrow = any(tensor.dtype is autocast for tensor in tensors_in(device.output))
        raising = raising_of(api, arguments, autocast, is_narrow)
        import torch

        bench = side_of(arguments, torch.device("cpu"), raising, with_gradients)
        run_forward(bench_function, bench, api, None, torch.device("cpu"), seed)
        outputs = Outputs(bench=plain(bench.output), device=plain(narrowed(device.output, autocast)))
        compared = getattr(reference, "compare_outputs", None)
        if compared is not None:
            outputs = _only(outputs, compared)
        chosen = getattr(reference, "grad_output", None)
        backward: Outputs | Skipped | None
        try:
            backward, gradients, of_device, of_bench = self._backward(
                call, arguments, device, bench, autocast, chosen
            )
        except Exception as error:  # torch may raise anything; the forward is judged nevertheless
            backward, gradients, of_device, of_bench = Skipped(one_line(error)), (), None, None
        kept = Kept(
            arguments, gradients, device, bench, of_device, of_bench, raising, autocast, reference is not None
        )

        def moved() -> Outcome:
            from probe_pytorch.precheck.execution import run_backward
            from probe_pytorch.precheck.replay import moved_call

            own = [tensor.dtype for tensor in tensors_in(device.output)]
            generator = generator_for(self._options.seed, f"{call.name}/moved")
            function, parts, change = moved_call(api, bench_function, arguments, raising, own, generator)
            side = side_of(parts, torch.device("cpu"), change, with_gradients)
            run_forward(function, side, api, None, torch.device("cpu"), seed)
            both = plain(side.output)
            outputs = Outputs(both, both) if compared is None else _only(Outputs(both, both), compared)
            if not gradients:
                return Outcome(outputs)
            numbers, given = zip(*gradients)
            found = plain(run_backward(side, numbers, [change.tensor(gradient) for gradient in given]))
            return Outcome(outputs, Outputs(found, found))

        is_random = rules.is_random(api, arguments.keywords)
        return Outcome(outputs, backward, is_random, notes, kept, moved=moved)

    @memory_errors()
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
            recorded_dtypes,
            recorded_keywords,
            restore_arguments,
            turn_off_randomness,
        )
        from probe_pytorch.precheck.raising import autocast_candidates, tensors_in
        from probe_pytorch.precheck.rebuild import load_any
        from probe_pytorch.precheck.replay import NOT_COMPUTED, RANDOM, Plan, RecordedOnly, replay

        api = call.api
        if api in rules("not_run") and api != "to":
            raise NotRun(NOT_COMPUTED)
        if "dropout" not in api and rules.is_random(api, recorded_keywords(call)):  # before tensors are read
            raise NotRun(RANDOM)
        spec = self._references.get(call.name.rpartition(".")[0])
        reference = None if spec is None else spec.make()
        function, bench_function, _ = self._functions(call, reference)

        def prepare(arguments: Arguments) -> None:
            if draws_random_numbers(api, arguments) or turn_off_randomness(api, arguments):
                raise NotRun(RANDOM)
            restore_arguments(api, arguments, call)

        def limit_memory(arguments: Arguments, raising: Raising, with_gradients: bool) -> None:
            need = self._need(call, bench_function, arguments, raising, with_gradients)
            limit_call(need.replayed, self._max_call_bytes)

        def autocast_of(arguments: Arguments) -> tuple[torch.dtype | None, bool]:
            if autocast_candidates(arguments, recorded_dtypes(call)) == [None]:
                return None, False
            side, autocast = self._run_device(call, function, arguments, False, 0)
            return autocast, any(tensor.dtype is autocast for tensor in tensors_in(side.output))

        chosen = getattr(reference, "grad_output", None)
        plan = Plan(
            bench_function,
            autocast_of,
            prepare,
            getattr(reference, "compare_outputs", None),
            rules("gradient_of_output").get(api) if chosen is None else chosen,
            self._options.is_ours,
            limit_memory,
        )
        if self._exact is None:
            directory = self._options.dump.parent / TENSOR_DIRECTORY
            self._exact = RecordedOnly(stored_in(directory, load_any), self._options.seed, max_input_bytes())
        return replay(call, plan, self._exact, self._options.seed if moved else None)

    @memory_errors()
    def run_sent(self, call: Call, tensors: Callable[[Value], np.ndarray[Any, Any]]) -> tuple[Outcome, Any]:
        """Run a call that a training sent, from exactly the sent inputs, and return what was sent as well.

        Raises:
            NotRun: The call is of an API that is not run, or draws random numbers.
            Unbuildable: An argument or an output was sent without its data, or cannot be read.
        """
        import torch

        from probe_pytorch.precheck.execution import run_forward, side_of
        from probe_pytorch.precheck.outputs import plain
        from probe_pytorch.precheck.preparing import (
            draws_random_numbers,
            recorded_keywords,
            restore_arguments,
            turn_off_randomness,
        )
        from probe_pytorch.precheck.raising import narrowed, raising_of, tensors_in
        from probe_pytorch.precheck.random_tensors import generator_for
        from probe_pytorch.precheck.replay import RecordedOnly, moved_call
        from probe_pytorch.precheck.sent import RANDOM, arranged, sent_outputs

        api = call.api
        if api in rules("not_run"):
            raise NotRun(unlisted(call.name))
        if "dropout" not in api and rules.is_random(api, recorded_keywords(call)):  # before tensors are read
            raise NotRun(RANDOM)
        spec = self._references.get(call.name.rpartition(".")[0])
        reference = None if spec is None else spec.make()
        function, bench_function, notes = self._functions(call, reference)
        rebuilder = RecordedOnly(tensors, self._options.seed, max_input_bytes())
        arguments = rebuilder.arguments(call)
        if draws_random_numbers(api, arguments) or turn_off_randomness(api, arguments):
            raise NotRun(RANDOM)
        restore_arguments(api, arguments, call)
        self._limit_memory(call, bench_function, arguments, False)
        sent = sent_outputs(call, rebuilder)
        seed = generator_for(self._options.seed, call.name).initial_seed() % (1 << 62)
        device, autocast = self._run_device(call, function, arguments, False, seed, as_recorded=True)
        is_narrow = any(tensor.dtype is autocast for tensor in tensors_in(device.output))
        raising = raising_of(api, arguments, autocast, is_narrow)
        cpu = torch.device("cpu")
        compared = getattr(reference, "compare_outputs", None)

        def compute(function: Callable[..., Any], arguments: Arguments, change: Raising) -> Any:
            side = side_of(arguments, cpu, change, False)
            run_forward(function, side, api, None, cpu, seed, as_recorded=True)
            return shown(plain(side.output))

        def moved() -> Outcome:
            generator = generator_for(self._options.seed, f"{call.name}/moved")
            both = compute(*moved_call(api, bench_function, arguments, raising, (), generator))
            return Outcome(Outputs(both, both))

        def shown(value: Any) -> Any:
            return value if compared is None else _only(Outputs(value, value), compared).bench

        own = plain(narrowed(device.output, autocast))
        outputs = Outputs(compute(bench_function, arguments, raising), shown(own))
        given = shown(arranged(plain(narrowed(sent, autocast)), own))
        return Outcome(outputs, notes=notes, moved=moved), given

    def _need(
        self,
        call: Call,
        function: Callable[..., Any],
        arguments: Arguments,
        raising: Raising,
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
        from probe_pytorch.precheck.raising import raising_of

        raising = raising_of(call.api, arguments, None)
        need = self._need(call, function, arguments, raising, with_gradients)
        limit_call(need.compared, self._max_call_bytes)

    def _functions(
        self, call: Call, reference: Any
    ) -> tuple[Callable[..., Any], Callable[..., Any], tuple[Message, ...]]:
        """Return the function of the device, the function of the reference, and notes on them."""
        from probe_pytorch.precheck.apis import NPU, function_of, has_npu_function
        from probe_pytorch.precheck.raising import composed

        scope, api, _ = call.parts
        if scope == NPU and reference is None:
            raise NotRun(f"There is not bench function {api}. SKIP.")
        if scope == NPU and not has_npu_function(api):
            return composed(reference.forward), reference.forward, (COMPOSED,)
        function = function_of(scope, api)
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
    ) -> tuple[Side, torch.dtype | None]:
        """Run a call on the device, under autocast if only that gives the recorded dtypes of its outputs.

        Autocast is also used if the backward fails without it.
        """
        from probe_pytorch.precheck.execution import has_backward, run_forward, side_of
        from probe_pytorch.precheck.preparing import recorded_dtypes
        from probe_pytorch.precheck.raising import Raising, autocast_candidates, tensors_in

        recorded = recorded_dtypes(call)
        candidates = autocast_candidates(arguments, recorded)
        failure: Exception | None = None
        fallback: tuple[Side, torch.dtype | None] | None = None
        for autocast in candidates:
            side = side_of(arguments, self._device, Raising(), with_gradients)
            try:
                run_forward(function, side, call.api, autocast, self._device, seed, as_recorded=as_recorded)
            except Exception as error:
                failure = failure or error
                continue
            dtypes = [t.dtype for t in tensors_in(side.output) if t.is_floating_point()]
            is_alike = not recorded or dtypes[: len(recorded)] == recorded
            if len(candidates) == 1 or (is_alike and (not with_gradients or has_backward(side))):
                return side, autocast
            fallback = fallback or (side, autocast)
        if fallback is None:
            assert failure is not None
            raise failure
        return fallback

    @memory_errors()
    def _backward(
        self,
        call: Call,
        arguments: Arguments,
        device: Side,
        bench: Side,
        autocast: torch.dtype | None,
        grad_output: int | None,
    ) -> tuple[Outputs | Skipped | None, tuple[tuple[int, Any], ...], Any, Any]:
        from probe_pytorch.precheck.execution import gradient_pairs, run_backward
        from probe_pytorch.precheck.outputs import plain
        from probe_pytorch.precheck.raising import narrowed, tensors_in

        if call.backward is None:
            return None, (), None, None
        if "out" in arguments.keywords:
            return Skipped(OUT), (), None, None
        if call.api in rules("no_backward"):
            return Skipped(NO_BACKWARD), (), None, None
        recorded = self._rebuilder.gradients(call)
        if all(gradient is None for gradient in recorded):
            return Skipped(NOT_RECORDED), (), None, None
        if grad_output is None:
            grad_output = rules("gradient_of_output").get(call.api)
        outputs, chosen = gradient_pairs(device, recorded, grad_output)
        if not outputs:
            return Skipped(NEEDS_NONE), (), None, None
        flat = list(tensors_in(device.output))
        gradients = []
        for i, k in zip(outputs, chosen):
            gradient = recorded[k]
            assert gradient is not None
            if gradient.shape != flat[i].shape:  # for example after indexing by a random mask
                gradient = self._rebuilder.gradient_like(call, k, flat[i].shape)
            gradients.append(gradient)
        of_device = run_backward(device, outputs, gradients)
        of_bench = run_backward(bench, outputs, gradients)
        results = Outputs(bench=plain(of_bench), device=plain(narrowed(of_device, autocast)))
        return results, tuple(zip(outputs, gradients)), of_device, of_bench

    # -- saving ----------------------------------------------------------------------------

    def save(self, call: Call, outcome: Outcome) -> str:
        """Save the data of a failed call with a script that reproduces it, and return the script's path."""
        from probe_pytorch.precheck.error_data import Kept, save

        assert self._options.error_directory is not None
        if not isinstance(outcome.kept, Kept):
            return ""
        return str(save(call, outcome.kept, self._options.error_directory, self._device))


def _only(outputs: Outputs, numbers: tuple[int, ...]) -> Outputs:
    return Outputs(*([side[i] for i in numbers] if isinstance(side, list) else side for side in outputs))


def reference_specs() -> dict[str, Any]:
    """Return the references of all plugins by the name of the API, such as ``NPU.npu_linear``."""
    from probe_precheck import ReferenceSpec

    from probe_core.plugins.manager import Manager

    references: dict[str, Any] = {}
    for item in Manager().contributions("references"):
        spec = item.spec
        if isinstance(spec, ReferenceSpec) and spec.framework in ("", "pytorch"):
            references.setdefault(spec.api, spec)
    return references
