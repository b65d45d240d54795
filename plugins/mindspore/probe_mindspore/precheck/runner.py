"""Runner of recorded calls of MindSpore: on this device, and by torch on the CPU as the reference."""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Callable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

from probe_precheck.api import (
    Array,
    Call,
    Message,
    NotRun,
    Outcome,
    Outputs,
    RunnerOptions,
    Skipped,
    Unbuildable,
    get_arguments,
)
from probe_precheck.memory import get_max_call_bytes, get_max_input_bytes
from probe_precheck.model import BACKWARD, FORWARD, NO_GRADIENT_TEXT, NO_RECORDED_GRADIENT_TEXT
from probe_precheck.rebuild import check_call_memory, is_recorded, list_descriptions
from probe_precheck.rules import read_package_text
from probe_recording.api import load_npy
from probe_recording.reading.tensors import open_tensors as stored_in

from probe_core.errors import UserError
from probe_core.model import Value
from probe_core.store.files import TENSOR_DIRECTORY
from probe_mindspore.precheck.apis import (
    find_device_function,
    find_reference_function,
    load_names,
    translate_arguments,
)
from probe_mindspore.precheck.error_data import ReproductionData, save
from probe_mindspore.precheck.rebuild import Rebuilder
from probe_mindspore.precheck.recorded import (
    AGAIN,
    describe_failed_rerun,
    describe_rerun_difference,
    has_recorded,
    read_recorded_gradients,
    read_recorded_outputs,
)
from probe_mindspore.precheck.tensors import Arguments, TensorArgument, rules, widen_outputs

if TYPE_CHECKING:
    import numpy as np

    from probe_mindspore.precheck.reference import TorchReference

NEEDED = {"mindspore": 'mindspore==2.10.0 "numpy<2"', "torch": "torch"}
"""Packages that the pre-check imports, and the arguments of pip that install them."""


class MindSporeRunner:
    """Runner of MindSpore's calls; both frameworks are imported when it is opened.

    Args:
        instead: Functions that the device runs in place of MindSpore's, such as kernels under development,
            by the name of a record without its count (``Mint.softmax``).
    """

    def __init__(self, instead: Mapping[str, Callable[..., Any]] | None = None) -> None:
        self._instead = instead or {}
        rules.load()  # a file that the installation lacks is reported before any call is run
        read_package_text(__package__, "script.txt")

    def apis(self) -> Set[str]:
        """Return the names, without their type, of all APIs that can be recorded.

        They are those in the tables of names, and those of MindSpore if it is installed.
        """
        apis = {name.partition(".")[2] for name in (*load_names().source.apis, *rules("torch"))}
        try:
            mint = importlib.import_module("mindspore.mint")
        except ModuleNotFoundError:
            return apis
        for place in (mint, mint.nn.functional):
            apis |= set(place.__all__)
        for prefix in ("special", "linalg"):
            apis |= {f"{prefix}.{name}" for name in getattr(mint, prefix).__all__}
        mindspore = importlib.import_module("mindspore")
        return apis | set(dir(mindspore.Tensor)) | set(mindspore.ops.__all__)

    def open(self, options: RunnerOptions) -> str:
        """Import both frameworks, select the device and open the recorded data.

        Args:
            options: The options of the pre-check.

        Returns:
            The name of the device.

        Raises:
            UserError: A framework or the device is missing.
        """
        _import_frameworks()
        import torch

        from probe_mindspore.precheck.device import select_device

        torch.set_num_threads(options.threads)
        self._options = options
        device = select_device(options.device)
        directory = options.dump.parent / TENSOR_DIRECTORY
        tensors = stored_in(directory, _load)
        self._rebuilder = Rebuilder(tensors, options.seed, get_max_input_bytes())
        self._max_call_bytes = get_max_call_bytes()
        return device

    # -- running ---------------------------------------------------------------------------

    def run(self, call: Call) -> Outcome:
        """Run one call on both sides.

        Raises:
            NotRun: The call cannot be run; the message says why.
        """
        from probe_mindspore.precheck import reference

        scope, api, _ = call.parts
        function = self._instead.get(f"{scope}.{api}") or find_device_function(scope, api)
        arguments = self._rebuilder.rebuild_arguments(call)
        of_torch = find_reference_function(scope, api, arguments)
        outputs_on_meta = reference.compute_meta_outputs(of_torch, translate_arguments(scope, api, arguments))
        check_call_memory(reference.estimate_memory(arguments, outputs_on_meta), self._max_call_bytes)
        seed = self._options.seed
        try:
            bench = reference.run_forward(
                of_torch,
                translate_arguments(scope, api, arguments),
                call.backward is not None,
                seed,
                is_raised=api not in rules("not_raised"),
            )
        except Exception as error:
            raise NotRun(f"torch does not take the arguments of {call.name}: {shorten_error(error)} SKIP.") from None
        plain = bench.plain
        device, notes = self._run_forward(call, function, arguments, plain)
        expected = reference.list_expected_dtypes(outputs_on_meta)
        device, narrow = widen_outputs(device, expected)
        notes += describe_narrow_outputs(narrow)
        outputs = Outputs(bench=plain, device=device)
        backward, gradients, backward_notes = self._run_backward(call, function, arguments, bench)
        reproduction_data = ReproductionData(
            arguments, gradients, outputs, backward if isinstance(backward, Outputs) else None
        )
        return Outcome(
            outputs,
            backward,
            rules.is_random(api, arguments.keywords),
            kept=reproduction_data,
            notes_of={FORWARD: notes, BACKWARD: backward_notes},
        )

    def run_sent(self, call: Call, tensors: Callable[[Value], np.ndarray[Any, Any]]) -> tuple[Outcome, Any]:
        """Run a call that a training sent on both sides, and return what was sent as well.

        Raises:
            NotRun: The call cannot be run; the message says why.
            Unbuildable: An argument was sent without its data, or cannot be read.
        """
        from probe_mindspore.precheck import device, reference

        scope, api, _ = call.parts
        function = self._instead.get(f"{scope}.{api}") or find_device_function(scope, api)
        call_arguments = get_arguments(call)
        sent = [call_arguments.positional, list(call_arguments.keywords.values()), call.forward.get("output")]
        for leaf in list_descriptions(sent):
            is_tensor = isinstance(leaf, Mapping) and "dtype" in leaf
            if is_tensor and not is_recorded(leaf) and 0 not in leaf.get("shape", ()):
                raise Unbuildable("A tensor was sent without its values. SKIP.")
        rebuilder = Rebuilder(tensors, self._options.seed, get_max_input_bytes())
        arguments = rebuilder.rebuild_arguments(call)
        if rules.is_random(api, arguments.keywords):
            raise NotRun("It draws random numbers, so what was sent cannot be computed again. SKIP.")
        of_torch = find_reference_function(scope, api, arguments)
        outputs_on_meta = reference.compute_meta_outputs(of_torch, translate_arguments(scope, api, arguments))
        check_call_memory(reference.estimate_memory(arguments, outputs_on_meta), self._max_call_bytes)
        seed, is_raised = self._options.seed, api not in rules("not_raised")
        try:
            bench = reference.run_forward(
                of_torch, translate_arguments(scope, api, arguments), False, seed, is_raised=is_raised
            )
        except Exception as error:
            raise NotRun(f"torch does not take the arguments of {call.name}: {shorten_error(error)} SKIP.") from None
        try:
            device_output = device.run_forward(function, arguments, seed)
        except Exception as error:
            raise NotRun(f"MindSpore cannot run it on this device: {shorten_error(error)} SKIP.") from None
        plain = bench.plain
        expected = reference.list_expected_dtypes(outputs_on_meta)
        device_output, _ = widen_outputs(device_output, expected)
        sent_output, narrow = widen_outputs(read_recorded_outputs(rebuilder, call, plain), expected)
        return Outcome(Outputs(bench=plain, device=device_output), notes=describe_narrow_outputs(narrow)), sent_output

    def _run_forward(
        self, call: Call, function: Callable[..., Any], arguments: Arguments, like: Any
    ) -> tuple[Any, tuple[Message, ...]]:
        """Return the outputs to test, recorded or else of this device, and the notes on them.

        Raises:
            NotRun: No outputs were recorded, and the call cannot be run on this device.
        """
        from probe_mindspore.precheck import device

        if not has_recorded(call):
            try:
                again = device.run_forward(function, arguments, self._options.seed)
            except Exception as error:
                raise NotRun(f"MindSpore cannot run it on this device: {shorten_error(error)} SKIP.") from None
            return again, (AGAIN,) if self._has_data(arguments, call) else ()
        recorded = read_recorded_outputs(self._rebuilder, call, like)
        if rules.is_random(call.api, arguments.keywords):
            return recorded, ()
        try:
            again = device.run_forward(function, arguments, self._options.seed)
        except Exception as error:
            return recorded, (describe_failed_rerun(shorten_error(error)),)
        return recorded, (describe_rerun_difference(recorded, again),)

    def _run_backward(
        self, call: Call, function: Callable[..., Any], arguments: Arguments, bench: TorchReference
    ) -> tuple[Outputs | Skipped | None, Sequence[TensorArgument | None], tuple[Message, ...]]:
        """Return the gradients of both sides, those of the outputs that they come from, and the notes.

        In place of the first there is the reason for skipping them; None if no backward was recorded.
        """
        from probe_mindspore.precheck import device, reference

        if call.backward is None:
            return None, (), ()
        try:
            gradients = self._choose_gradients(call, bench)
            recorded = read_recorded_gradients(self._rebuilder, call, arguments.tensors)
        except Exception as error:
            return Skipped(shorten_error(error)), (), ()
        if all(gradient is None for gradient in gradients):
            is_recorded = any(self._rebuilder.rebuild_gradients(call))
            return Skipped(NO_GRADIENT_TEXT if is_recorded else NO_RECORDED_GRADIENT_TEXT), (), ()
        try:
            expected: list[Array | None] = [*reference.run_backward(bench, gradients)]
        except Exception as error:
            return Skipped(f"torch cannot run its backward: {shorten_error(error)} SKIP."), gradients, ()
        again: list[Array | None] | None = None
        problem = ""
        try:
            again = device.run_backward(function, call.api, arguments, gradients, self._options.seed)
        except Exception as error:
            problem = shorten_error(error)
        notes: tuple[Message, ...]
        if recorded is not None:
            tested: list[Array | None] = recorded
            expected = [gradient if other is not None else None for gradient, other in zip(expected, recorded)]
            notes = (describe_failed_rerun(problem) if again is None else describe_rerun_difference(recorded, again),)
        elif again is not None:
            tested = again
            notes = (AGAIN,) if has_recorded(call) else ()
        else:
            return Skipped(f"MindSpore cannot run its backward on this device: {problem} SKIP."), gradients, ()
        dtypes = [argument.dtype for argument in arguments.tensors if argument.is_float]
        device_gradients, narrow = widen_outputs(tested, dtypes)
        return Outputs(expected, device_gradients), gradients, (*notes, *describe_narrow_outputs(narrow))

    def _choose_gradients(self, call: Call, bench: TorchReference) -> list[TensorArgument | None]:
        """Return the gradient of each output of the reference, flat; None for an output without one."""
        outputs = bench.tensors
        recorded = self._rebuilder.rebuild_gradients(call)
        wanted = [i for i, output in enumerate(outputs) if output.requires_grad]
        recorded_numbers = [i for i, gradient in enumerate(recorded) if gradient is not None and gradient.is_float]
        pairs = (
            dict(zip(wanted, recorded_numbers))
            if len(wanted) == len(recorded_numbers)
            else {i: i for i in wanted if i in recorded_numbers}
        )
        gradients: list[TensorArgument | None] = []
        for i, output in enumerate(outputs):
            gradient = recorded[pairs[i]] if i in pairs else None
            if gradient is not None and gradient.values.shape != tuple(output.shape):
                gradient = self._rebuilder.draw_gradient(call, pairs[i], tuple(output.shape))
            gradients.append(gradient)
        return gradients

    def _has_data(self, arguments: Arguments, call: Call) -> bool:
        """Return True if a call has tensors, and the values of any of them were recorded."""
        argument_fields = [call.forward.get("input_args"), list((call.forward.get("input_kwargs") or {}).values())]
        return bool(arguments.tensors) and any(is_recorded(leaf) for leaf in list_descriptions(argument_fields))

    # -- saving ----------------------------------------------------------------------------

    def save(self, call: Call, outcome: Outcome) -> str:
        """Save the data of a call that did not pass, and return the path of its script; empty for no data."""
        assert self._options.error_directory is not None
        if not isinstance(outcome.kept, ReproductionData):
            return ""
        return str(save(call, outcome.kept, self._options.error_directory))


def describe_narrow_outputs(changes: Sequence[str]) -> tuple[Message, ...]:
    """Return a note that outputs have narrower dtypes than torch's, and are judged by the wider ones.

    Args:
        changes: The dtypes that were changed, each with the dtype that replaces it.
    """
    if not changes:
        return ()
    text = ", ".join(dict.fromkeys(changes))
    return (Message(f"输出数据类型的精度过低，按应有类型判定: {text}。",
                    f"Its dtype is narrower than torch's, by which it is judged: {text}."),)  # fmt: skip


def shorten_error(error: BaseException) -> str:
    """Return the beginning of an error's message, without the pages that MindSpore adds after dashes."""
    text = re.split(r"- C\+\+ Call Stack|\bnode: @", str(error))[0]
    text = " ".join(re.sub(r"-{2,}\s*(- )?", " ", text).split())
    return (text or type(error).__name__).rstrip("-. ")[:600] + "."


def _import_frameworks() -> None:
    """Import both frameworks.

    Raises:
        UserError: One of them is not installed.
    """
    for module, package in NEEDED.items():
        spec = importlib.util.find_spec(module)
        if spec is None or spec.origin is None:  # a directory of this name has no origin
            raise UserError(
                f"Running APIs of MindSpore needs {module}, which is not installed.",
                f"Install it with: pip install {package}",
            )
        importlib.import_module(module)


def _load(path: str) -> Any:
    """Return the array in a ``.npy`` file."""
    from pathlib import Path

    return load_npy(Path(path))
