"""Collection inside of a training script."""

from __future__ import annotations

import enum
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from probe_recording.capture.condition_capture import new_condition_capture
from probe_recording.messages import note
from probe_recording.step_facts.conditions import Conditions
from probe_recording.step_facts.environment import read_variables

from probe_check.config_check import collection
from probe_check.config_check.framework import FrameworkAdapter
from probe_check.config_check.pack_file import PackFile
from probe_check.config_check.random_log import RANDOM_LOG
from probe_check.config_check.rules import HIDDEN_TEXT, load_rules
from probe_core.errors import UserError, describe_error

MAX_STEPS = 10
"""Number of forward calls whose inputs and weights are collected, unless the script sets another."""
MEGATRON_MODULES = ("megatron.training", "megatron")
"""Modules in which Megatron keeps ``get_args``, the newer one first."""


class ConfigChecker:
    """A collector of the configuration of a training, of its inputs and of its weights.

    Errors during forward calls are printed once each and do not reach the program.

    Args:
        model: The model, or a list whose first item is; None to collect no inputs, weights or random calls.
        shell_path: Shell scripts and yaml files with hyper-parameters.
        output_zip_path: The pack, which must end in ``.zip``. An earlier one is replaced.
        fmk: The framework, ``pytorch`` or ``mindspore``.
        steps: The number of forward calls whose inputs and weights are collected; None for all.

    Raises:
        UserError: An argument is wrong, or the pack cannot be written.
    """

    def __init__(
        self,
        model: Any = None,
        shell_path: Sequence[str] | str | None = None,
        output_zip_path: str = "./config_check_pack.zip",
        fmk: str = "pytorch",
        *,
        steps: int | None = MAX_STEPS,
    ) -> None:
        self._adapter = create_adapter(fmk)
        self._framework, self._steps, self._step = fmk, steps, 0
        self._pack = PackFile(Path(output_zip_path))
        self._capture = new_condition_capture(fmk)
        self._process, self._has_parameters = os.getpid(), False
        self._lost: set[str] = set()
        self._rank = self._adapter.process.rank
        model = model[0] if isinstance(model, (list, tuple)) and model else model
        if model is not None:
            self._adapter.check_model(model)
        paths = [shell_path] if isinstance(shell_path, (str, os.PathLike)) else shell_path or []
        if self._rank == 0:
            self._pack.add(self._collect_static_members([Path(path) for path in paths]))
        if model is not None:
            self._adapter.hook_forward(model, self._collect_forward_call)

    @staticmethod
    def apply_patches(fmk: str = "pytorch") -> None:
        """Record the calls of random functions from now on, until the first forward call of a checked model.

        Args:
            fmk: The framework, ``pytorch`` or ``mindspore``.

        Raises:
            UserError: The framework is not known, or not installed.
        """
        create_adapter(fmk).patch_random_functions()
        RANDOM_LOG.start()

    @staticmethod
    def compare(bench_zip_path: str, cmp_zip_path: str, output_path: str, fmk: str = "pytorch") -> None:
        """Compare two packs and write the results, as ``probe config-check -c`` does.

        Raises:
            UserError: A path is not a pack, or the results cannot be written.
        """
        from probe_check.config_check.results import compare_and_write

        compare_and_write(Path(bench_zip_path), Path(cmp_zip_path), Path(output_path), fmk)

    # -- collection ------------------------------------------------------------------------------

    def _collect_static_members(self, paths: Sequence[Path]) -> dict[str, str]:
        """Return what is collected before the first forward call."""
        return {**collection.collect_static_members(paths), **self._collect_dynamic_members()}

    def _collect_dynamic_members(self) -> dict[str, str]:
        """Return the arguments of Megatron once they are known; empty before, and afterwards."""
        is_done = self._has_parameters or self._step > 0 or self._rank != 0
        parameters = {} if is_done else read_megatron_arguments()
        if not parameters:
            return {}
        self._has_parameters = True
        return {"hyperparameters/hyperparameters_dynamic.json": json.dumps(parameters, indent=4)}

    def _collect_forward_call(self, model: Any, args: Any, kwargs: Mapping[str, Any]) -> None:
        """Collect a forward call."""
        is_beyond = self._steps is not None and self._step >= self._steps
        if is_beyond or os.getpid() != self._process:
            return
        members: dict[str, str] = {}
        place = f"step{self._step}/rank{self._rank}"
        parts: dict[str, Callable[[], Mapping[str, str]]] = {
            "conditions": lambda: self._collect_conditions(place, model, args, kwargs),
            "inputs": lambda: self._collect_inputs(place, args, kwargs),
            "weights": lambda: self._collect_weights(place, model),
            "random calls": self._collect_random_calls,
            "arguments": self._collect_dynamic_members,
        }
        with self._capture.quiet():
            for part, collect in parts.items():
                self._guard(part, lambda collect=collect: members.update(collect()))  # type: ignore[misc]
        self._guard("pack", lambda: self._pack.add(members))
        self._step += 1

    def _guard(self, part: str, collect: Callable[[], None]) -> None:
        """Collect a part of a forward call; the first error of each part is printed."""
        try:
            collect()
        except Exception as error:  # the training must go on whatever the checker's error
            if part not in self._lost:
                note(f"config-check: {part} of step {self._step} cannot be collected: {describe_error(error)}")
            self._lost.add(part)

    def _collect_conditions(self, place: str, model: Any, args: Any, kwargs: Mapping[str, Any]) -> dict[str, str]:
        conditions = Conditions()
        conditions.add_facts("environment", read_variables())
        self._capture.record_model_call(conditions, model, args, kwargs)
        self._capture.record_program(conditions)
        return {f"{place}/conditions.json": conditions.text(self._framework)}

    def _collect_inputs(self, place: str, args: Any, kwargs: Mapping[str, Any]) -> dict[str, str]:
        return {f"dataset/{place}/dataset.json": json.dumps(self._adapter.measure_inputs(args, kwargs), indent=4)}

    def _collect_weights(self, place: str, model: Any) -> dict[str, str]:
        return {f"weights/{place}/weight.json": json.dumps(self._adapter.measure_weights(model), indent=4)}

    def _collect_random_calls(self) -> dict[str, str]:
        """Return the calls up to the first forward call, and end recording; empty afterwards."""
        if self._step:
            return {}
        text = RANDOM_LOG.format_calls()
        RANDOM_LOG.remove()
        return {f"random/rank{self._rank}.json": text} if self._rank == 0 else {}


def read_megatron_arguments() -> dict[str, Any]:
    """Return the arguments of Megatron, without secrets; empty if it is not used, or not initialized yet."""
    for name in MEGATRON_MODULES:
        function = getattr(sys.modules.get(name), "get_args", None)
        if function is None:
            continue
        with suppress(Exception):  # not initialized yet
            arguments = vars(function())
            rules = load_rules()
            return {
                key: HIDDEN_TEXT if rules.is_secret(key) else _convert_to_json(value)
                for key, value in arguments.items()
                if not key.startswith("_")
            }
    return {}


def _convert_to_json(value: Any) -> Any:
    """Return a value as JSON data; None for an object that has no text of its own."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_convert_to_json(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _convert_to_json(item) for key, item in value.items()}
    is_named = isinstance(value, (enum.Enum, os.PathLike)) or type(value).__name__ == "dtype"
    return str(value) if is_named else None


# -- choice of the framework's part of ConfigChecker ------------------------------------------------


def create_adapter(framework: str) -> FrameworkAdapter:
    """Return the adapter of a framework, which is imported only now.

    Raises:
        UserError: The framework is not known, or not installed.
    """
    try:
        if framework == "pytorch":
            from probe_check.config_check.pytorch import TorchAdapter

            return TorchAdapter()
        if framework == "mindspore":
            from probe_check.config_check.mindspore import MindSporeAdapter

            return MindSporeAdapter()
    except ImportError as error:
        raise UserError(f"{framework} cannot be imported: {error}.", "Install it, or set fmk.") from None
    raise UserError(f'invalid value for fmk: "{framework}".', "Give one of these.", ("pytorch", "mindspore"))
