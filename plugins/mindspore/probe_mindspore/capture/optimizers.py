"""The parameters, states and settings of optimizers of MindSpore."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mindspore import Parameter, Tensor, nn

Named = list[tuple[str, Any]]
_SEVERAL = (list, tuple, nn.CellList)


def list_parameters(optimizer: nn.Cell) -> Named:
    """Return the names and values of the parameters that an optimizer changes."""
    return [(str(parameter.name), parameter) for parameter in optimizer.parameters]


def list_applied_gradients(optimizer: nn.Cell, args: Sequence[Any]) -> Named:
    """Return the gradients that an optimizer is called with, by the names of its parameters."""
    given = args[0] if len(args) == 1 else args
    gradients = [given] if isinstance(given, Tensor) else list(given)
    return [(name, gradient) for (name, _), gradient in zip(list_parameters(optimizer), gradients)]


def list_states(optimizer: nn.Cell) -> Named:
    """Return the other parameters of an optimizer, such as moments, without those that hold settings."""
    known = {id(parameter) for parameter in optimizer.parameters}
    known.update(id(value) for group in _iterate_settings(optimizer) for value in group.values())
    return [(str(state.name), state) for state in optimizer.get_parameters() if id(state) not in known]


def list_groups(optimizer: nn.Cell) -> list[dict[str, Any]]:
    """Return the settings of each group of parameters, and their names where they are known."""
    names = [name for name, _ in list_parameters(optimizer)]
    groups = list(_iterate_settings(optimizer))
    return [
        {
            "settings": {key: _convert_to_plain(value) for key, value in settings.items()},
            "parameters": _select_names(names, number, len(groups)),
        }
        for number, settings in enumerate(groups)
    ]


def _select_names(names: list[str], number: int, count: int) -> list[str]:
    """Return the names of a group: all of a single group, or one if each parameter is a group."""
    if count == 1:
        return names
    return [names[number]] if count == len(names) else []


def _iterate_settings(optimizer: nn.Cell) -> Iterator[dict[str, Any]]:
    """Yield the settings of each group of parameters; with rates of its own, each parameter is a group."""
    groups = getattr(optimizer, "param_groups", None)
    if isinstance(groups, list):  # as in PyTorch: optimizers of mint and experimental
        for group in groups:
            yield {key: value for key, value in group.items() if key != "params"}
        return
    rates = getattr(optimizer, "learning_rate", None)
    decay, scale = (getattr(optimizer, name, None) for name in ("weight_decay", "loss_scale"))
    for number, rate in enumerate(rates if isinstance(rates, _SEVERAL) else [rates]):
        group_decay = decay[number] if isinstance(decay, _SEVERAL) and number < len(decay) else decay
        yield {"lr": _read_scheduled_rate(optimizer, rate), "weight_decay": group_decay, "loss_scale": scale}


def _read_scheduled_rate(optimizer: nn.Cell, rate: Any) -> Any:
    """Return the learning rate of the next step, if it is a constant or an item of a list."""
    values = getattr(rate, "learning_rate", None)
    step = getattr(optimizer, "global_step", None)
    if not isinstance(rate, nn.Cell) or not isinstance(values, Parameter) or step is None:
        return rate
    rates = values.asnumpy()
    return float(rates[min(int(step.asnumpy().reshape(-1)[0]), len(rates) - 1)])


def _convert_to_plain(value: Any) -> Any:
    """Return a setting as JSON: a number, a text or a list of them; others by the names of their types."""
    if isinstance(value, Tensor):
        return float(value.asnumpy().reshape(-1)[0]) if value.size == 1 else type(value).__name__
    if isinstance(value, (list, tuple)):
        return [_convert_to_plain(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return type(value).__name__
