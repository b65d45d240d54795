"""Choice of the framework's part of ConfigChecker."""

from __future__ import annotations

from probe_check.config_check.framework import FrameworkAdapter
from probe_core.errors import UserError


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
