"""Hooks, statistics and random functions of MindSpore for ConfigChecker, in PyNative mode."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import mindspore
import numpy as np
from mindspore import nn, ops

from probe_check.config_check.framework import FrameworkAdapter, Hook, StatisticValues
from probe_check.config_check.random_log import RANDOM_LOG, patch_functions
from probe_check.mindspore_process import MindSporeProcess
from probe_core.errors import UserError

RANDOM_FUNCTIONS = ("rand", "randint", "randn")
SEED_NAME = "mindspore.manual_seed"
"""The name by which msprobe's packs show ``mindspore.set_seed``."""


class MindSporeAdapter(FrameworkAdapter):
    """The adapter of ConfigChecker for MindSpore."""

    def __init__(self) -> None:
        self.process = MindSporeProcess()

    def patch_random_functions(self) -> None:
        """Replace the random functions of Python, NumPy and MindSpore."""
        RANDOM_LOG.patch_hosts()
        patch_functions({ops: ("mindspore.ops", RANDOM_FUNCTIONS)})
        RANDOM_LOG.patch(mindspore, "set_seed", SEED_NAME)

    def check_model(self, model: Any) -> None:
        """Raise a UserError if a model is not a Cell, or runs in GRAPH_MODE."""
        if not isinstance(model, nn.Cell):
            raise UserError(
                f"model is a {type(model).__name__}, not a mindspore.nn.Cell.",
                "Pass the model, or a list of models.",
            )
        if mindspore.get_context("mode") == mindspore.GRAPH_MODE:
            raise UserError(
                "Inputs and weights cannot be collected in GRAPH_MODE, which compiles the model.",
                "Call mindspore.set_context(mode=mindspore.PYNATIVE_MODE), or pass no model.",
            )

    def hook_forward(self, model: Any, callback: Hook) -> Any:
        """Call ``callback`` before each call of a Cell."""

        def hook(cell: Any, args: Any, kwargs: Any = None) -> None:
            callback(cell, args, kwargs or {})

        return model.register_forward_pre_hook(hook, with_kwargs=True)

    def is_tensor(self, value: Any) -> bool:
        """Return True for a tensor."""
        return isinstance(value, mindspore.Tensor)

    def measure(self, tensor: Any) -> StatisticValues | None:
        """Return the statistics, computed by NumPy in float32."""
        if getattr(tensor, "has_init", False) or not tensor.size:
            return None
        is_bfloat16 = tensor.dtype == mindspore.bfloat16
        values = (tensor.float() if is_bfloat16 else tensor).asnumpy()
        values = values.view(values.real.dtype) if np.iscomplexobj(values) else values
        values = values.astype(np.float32).ravel()
        return {
            "max": float(values.max()),
            "min": float(values.min()),
            "mean": float(values.mean()),
            "norm": float(np.linalg.norm(values)),
        }

    def measure_weights(self, model: Any) -> dict[str, StatisticValues]:
        """Return the statistics of all parameters, in float32."""
        statistics: dict[str, StatisticValues] = {}
        for name, parameter in model.parameters_and_names():
            with suppress(Exception):  # a parameter without values
                measured = self.measure(parameter)
                statistics |= {} if measured is None else {str(name): measured}
        return statistics
