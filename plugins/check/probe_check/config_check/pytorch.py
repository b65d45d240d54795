"""Hooks, statistics and random functions of PyTorch for ConfigChecker."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch

from probe_check.config_check.framework import FrameworkAdapter, Hook, StatisticValues
from probe_check.config_check.random_log import RANDOM_LOG, get_compiling_test, patch_functions
from probe_check.torch_process import TorchProcess
from probe_core.errors import UserError

RANDOM_FUNCTIONS = ("rand", "randint", "randn", "rand_like", "randint_like", "randn_like", "manual_seed")
RANDOM_METHODS = ("exponential_", "geometric_", "log_normal_", "cauchy_")


class TorchAdapter(FrameworkAdapter):
    """The adapter of ConfigChecker for PyTorch."""

    def __init__(self) -> None:
        self.process = TorchProcess()

    def patch_random_functions(self) -> None:
        """Replace the random functions of Python, NumPy and torch."""
        RANDOM_LOG.patch_hosts()
        patch_functions({torch: ("torch", RANDOM_FUNCTIONS), torch.Tensor: ("torch.Tensor", RANDOM_METHODS)})

    def check_model(self, model: Any) -> None:
        """Raise a UserError if a model is not a Module."""
        if not isinstance(model, torch.nn.Module):
            raise UserError(
                f"model is a {type(model).__name__}, not a torch.nn.Module.",
                "Pass the model, or a list of models.",
            )

    def hook_forward(self, model: Any, callback: Hook) -> Any:
        """Call ``callback`` before each forward call of a model."""
        is_compiling = get_compiling_test()

        def hook(module: torch.nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
            if not is_compiling():
                callback(module, args, kwargs)

        return model.register_forward_pre_hook(hook, with_kwargs=True)

    def is_tensor(self, value: Any) -> bool:
        """Return True for a tensor."""
        return isinstance(value, torch.Tensor)

    def measure(self, tensor: torch.Tensor) -> StatisticValues | None:
        """Return the statistics of a tensor, in its dtype; in float32 for float64, float8 and integers."""
        with torch.no_grad():
            values = tensor.detach()
            if not values.numel():
                return None
            if values.is_complex():
                values = torch.view_as_real(values.resolve_conj())
            if not values.is_floating_point() or values.dtype == torch.float64 or values.element_size() < 2:
                values = values.float()
            return {
                "max": float(values.max()),
                "min": float(values.min()),
                "mean": float(values.mean()),
                "norm": float(values.norm()),
            }

    def measure_weights(self, model: torch.nn.Module) -> dict[str, StatisticValues]:
        """Return the statistics of all parameters, in float32."""
        statistics: dict[str, StatisticValues] = {}
        for name, parameter in model.named_parameters():
            with suppress(Exception):  # a parameter without values, such as a lazy parameter
                measured = self.measure(parameter.detach().float() if not parameter.is_complex() else parameter)
                statistics |= {} if measured is None else {name: measured}
        return statistics
