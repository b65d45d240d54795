"""A call that is ready to run on the device and as the reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from probe_precheck.api import Call, Outcome, Outputs

from probe_pytorch.precheck.execution import CallSide, create_side, run_backward, run_forward
from probe_pytorch.precheck.outputs import convert_to_arrays
from probe_pytorch.precheck.raising import DtypeConversion, find_conversion, iterate_tensors
from probe_pytorch.precheck.random_tensors import create_generator
from probe_pytorch.precheck.rebuild import Arguments
from probe_pytorch.precheck.replay import CPU, perturb_call


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """A call that is ready to run.

    Attributes:
        call: The call.
        reference: The definition of a plugin; None for a function of torch.
        function: The function of the device.
        reference_function: The function of the reference.
        arguments: The arguments, on the CPU.
        seed: The random seed to set before each run.
        with_gradients: True if the backward is run as well.
        as_recorded: True for the output that a record holds, as in ``run_forward``.
    """

    call: Call
    reference: Any
    function: Callable[..., Any]
    reference_function: Callable[..., Any]
    arguments: Arguments
    seed: int
    with_gradients: bool = False
    as_recorded: bool = False

    def run_function(
        self,
        function: Callable[..., Any],
        arguments: Arguments,
        conversion: DtypeConversion,
        device: torch.device = CPU,
        autocast: torch.dtype | None = None,
    ) -> CallSide:
        """Run a function with copies of the arguments on a device, and return its side."""
        side = create_side(arguments, device, conversion, self.with_gradients)
        run_forward(function, side, self.call.api, autocast, device, self.seed, as_recorded=self.as_recorded)
        return side

    def find_conversion(self, device_side: CallSide, autocast: torch.dtype | None) -> DtypeConversion:
        """Return the dtypes of the reference, after the device has run the call."""
        is_narrow = any(tensor.dtype is autocast for tensor in iterate_tensors(device_side.output))
        return find_conversion(self.call.api, self.arguments, autocast, is_narrow)

    def select_outputs(self, output: Any) -> Any:
        """Return the outputs that are compared as arrays, of an output with tensors."""
        return self.select_arrays(convert_to_arrays(output))

    def select_arrays(self, arrays: Any) -> Any:
        """Return the outputs that are compared, of all outputs as arrays."""
        numbers = getattr(self.reference, "compare_outputs", None)
        return [arrays[i] for i in numbers] if numbers is not None and isinstance(arrays, list) else arrays

    def run_perturbed(
        self,
        conversion: DtypeConversion,
        result_dtypes: Sequence[torch.dtype],
        gradients: Sequence[tuple[int, torch.Tensor]],
        seed: int,
    ) -> Outcome:
        """Run the reference with inputs that are changed by a random part of their rounding.

        Args:
            conversion: The dtypes of the reference.
            result_dtypes: The dtypes of the results of the device.
            gradients: The gradients of outputs, with the numbers of the outputs; empty to run no backward.
            seed: The random seed of the run, from which that of the changes is derived.
        """
        generator = create_generator(seed, f"{self.call.name}/moved")
        function, arguments, conversion = perturb_call(
            self.call.api, self.reference_function, self.arguments, conversion, result_dtypes, generator
        )
        side = self.run_function(function, arguments, conversion)
        result = self.select_outputs(side.output)
        outputs = Outputs(result, result)
        if not gradients:
            return Outcome(outputs)
        numbers, output_gradients = zip(*gradients)
        input_gradients = convert_to_arrays(
            run_backward(side, numbers, [conversion.convert_tensor(gradient) for gradient in output_gradients])
        )
        return Outcome(outputs, Outputs(input_gradients, input_gradients))


def derive_call_seed(seed: int, name: str) -> int:
    """Return the random seed of a call, which differs from those of other calls."""
    return create_generator(seed, name).initial_seed() % (1 << 62)
