"""The conditions of a step of a PyTorch program: settings of torch, random states and the batch."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch
from probe_recording.api import ConditionCapture, Session
from probe_recording.step_facts.batch_values import create_batch_entry, iterate_batch_tensors
from probe_recording.step_facts.conditions import Conditions, Fact

from probe_pytorch import compat_conditions as compat
from probe_pytorch.batch_hash import hash_tensor
from probe_pytorch.compat import disable_modes
from probe_pytorch.data_position import DataPosition
from probe_pytorch.generators import hash_state, iterate_default_generators, read_states


class TorchConditions(ConditionCapture):
    """A capture of the conditions of PyTorch steps."""

    def __init__(self) -> None:
        super().__init__()
        self.data = DataPosition()

    def begin(self, session: Session) -> None:
        """Begin a step, which ``session`` records."""
        self.data.watch()
        super().begin(session)

    def data_position(self) -> dict[str, Fact]:
        """Return the position of the data loader that returned the latest batch."""
        return self.data.read_facts()

    def read_versions(self) -> dict[str, Fact]:
        """Return the versions of the libraries that torch was built with or loaded."""
        return compat.read_library_versions()

    def read_devices(self) -> dict[str, Fact]:
        """Return the instruction set of the CPU kernels, and the names of the devices in use."""
        facts: dict[str, Fact] = {"instruction_set": compat.read_instruction_set()}
        for name, module in compat.iterate_device_modules():
            kinds = {str(module.get_device_name(number)) for number in range(module.device_count())}
            facts[name] = ", ".join(sorted(kinds))
        return facts

    def read_numerics(self) -> dict[str, Fact]:
        """Return the settings of torch that may change numbers."""
        return compat.read_numerics()

    def read_layout(self) -> dict[str, Fact]:
        """Return the number of processes and the backend of the process group."""
        dist = torch.distributed
        if not (dist.is_available() and dist.is_initialized()):
            return {}
        return {"world_size": dist.get_world_size(), "backend": str(dist.get_backend())}

    def hash_states(self) -> dict[str, str]:
        """Return the hash of the state of each default generator."""
        return {name: hash_state(state) for name, _, state in read_states()}

    def collect_seeds(self) -> dict[str, int]:
        """Return the random seed of each default generator."""
        return {name: generator.initial_seed() for name, generator in iterate_default_generators()}

    def hash_batch(self, conditions: Conditions, args: Any, kwargs: Any) -> None:
        """Add a hash of each tensor in the arguments of a model; hashes on a device are fetched later."""
        for name, tensor in iterate_batch_tensors(args, kwargs, torch.Tensor):
            self._add(conditions, name, tensor)

    def close(self) -> None:
        """Stop observing data loaders."""
        self.data.remove()

    def quiet(self) -> AbstractContextManager[Any]:
        """Return a context inside which no computation is recorded."""
        return disable_modes()

    def _add(self, conditions: Conditions, name: str, tensor: torch.Tensor) -> None:
        result = hash_tensor(tensor)
        if result is None:
            return
        dtype, shape = str(tensor.dtype).removeprefix("torch."), list(tensor.shape)

        def fetch() -> None:
            conditions.batch[name] = create_batch_entry(dtype, shape, int(result.item()))

        conditions.pending.append(fetch)
