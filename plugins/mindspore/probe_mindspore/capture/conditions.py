"""The conditions of a step of a MindSpore program: settings, random states and the batch."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import mindspore
from mindspore import Tensor, communication, nn
from probe_recording.api import ConditionCapture, Session
from probe_recording.step_facts.batch_values import create_batch_entry, hash_array, iterate_batch_tensors
from probe_recording.step_facts.conditions import Conditions, Fact

from probe_mindspore import compat
from probe_mindspore.capture.cells import list_models
from probe_mindspore.capture.draws import DrawWatch
from probe_mindspore.generators import read_seeds, read_states
from probe_mindspore.values import convert_to_array

NUMERICS_SETTINGS = ("jit_level", "jit_config", "runtime_num_threads", "pynative_synchronize")
"""Settings of the context that may change numbers, on all devices."""

DEVICE_SETTINGS = {
    "Ascend": ("precision_mode", "ascend_config", "enable_reduce_precision"),
    "GPU": ("matmul_allow_tf32", "conv_allow_tf32", "conv_fprop_algo", "gpu_config", "enable_graph_kernel"),
}
"""Settings of the context that may change numbers on one type of devices; MindSpore warns on other types."""


class MindSporeConditions(ConditionCapture):
    """A capture of the conditions of MindSpore steps.

    Args:
        draws: The watcher of the random numbers that calls draw; None if no step is recorded.
    """

    def __init__(self, draws: DrawWatch | None = None) -> None:
        super().__init__()
        self._draws = draws or DrawWatch()
        self._handles: list[Any] = []

    def begin(self, session: Session) -> None:
        """Begin a step, which is recorded into a new session."""
        self._draws.begin(session)
        super().begin(session)

    def end(self) -> None:
        """Record the states at the end of the step, and what is known of the program by then."""
        super().end()
        self._draws.end()

    def install(self, session: Session, model: Any) -> None:
        """Record what holds when one of the models is called first in the step."""

        def record_call(cell: nn.Cell, args: Any, kwargs: Any = None) -> None:
            self.record_first_call(cell, args, kwargs or {})

        if self.session is not None:
            self._handles += [compat.hook_call(root, record_call) for root in list_models(model)]

    def remove(self) -> None:
        """Remove the hooks."""
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()

    def read_versions(self) -> dict[str, Fact]:
        """Return the version of MindSpore."""
        return {"mindspore": str(mindspore.__version__)}

    def read_devices(self) -> dict[str, Fact]:
        """Return the type of the devices."""
        return {"device_target": str(mindspore.get_context("device_target"))}

    def read_numerics(self) -> dict[str, Fact]:
        """Return the settings of MindSpore that may change numbers, without those that cannot be read."""
        facts: dict[str, Fact] = {}
        target = str(mindspore.get_context("device_target"))
        for name in (*NUMERICS_SETTINGS, *DEVICE_SETTINGS.get(target, ())):
            with suppress(Exception):
                facts[name] = _convert_to_fact(mindspore.get_context(name))
        with suppress(Exception):
            facts["deterministic_algorithms"] = mindspore.get_context("deterministic") == "ON"
        with suppress(Exception):
            facts["mode"] = "GRAPH_MODE" if compat.is_compiled_mode() else "PYNATIVE_MODE"
        return facts

    def read_model_settings(self, model: Any) -> dict[str, Fact]:
        """Return the mode of a Cell, and its level of mixed precision."""
        return {**super().read_model_settings(model), "amp_level": compat.get_amp_level(model) or "O0"}

    def read_layout(self) -> dict[str, Fact]:
        """Return the number of processes, the backend of communication and the mode of parallelism."""
        facts: dict[str, Fact] = {}
        with suppress(Exception):
            facts["parallel_mode"] = str(mindspore.get_auto_parallel_context("parallel_mode"))
        if communication.GlobalComm.INITED:
            facts["world_size"] = int(communication.get_group_size())
            facts["backend"] = str(communication.GlobalComm.BACKEND)
        return facts

    def hash_states(self) -> dict[str, str]:
        """Return the hash of the state of each generator."""
        return read_states(self._draws.state)

    def collect_seeds(self) -> dict[str, int]:
        """Return the random seed of each generator that has one."""
        return read_seeds()

    def hash_batch(self, conditions: Conditions, args: Any, kwargs: Any) -> None:
        """Add a hash of each tensor in the arguments of a Cell."""
        for name, tensor in iterate_batch_tensors(args, kwargs, Tensor):
            if getattr(tensor, "has_init", False):
                continue
            hashed = hash_array(convert_to_array(tensor))
            if hashed is not None:
                conditions.batch[name] = create_batch_entry(str(tensor.dtype).lower(), tensor.shape, hashed)


def _convert_to_fact(value: Any) -> Fact:
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
