"""Preparation of the arguments of a call: restore what records cannot express, and turn off randomness."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from probe_precheck.api import Call, Message
from probe_precheck.memory import get_max_input_bytes
from probe_precheck.rebuild import check_tensor_memory, list_descriptions

from probe_pytorch.precheck.rebuild import Arguments, Rebuilder, decode_plain_value
from probe_pytorch.precheck.rules import rules

DROPOUT_OFF = Message("两侧均已关闭dropout。", "Its dropout is off on both sides.")


def list_recorded_dtypes(call: Call) -> list[torch.dtype]:
    """Return the recorded floating-point dtypes of the outputs of a call."""
    described = list_descriptions(call.forward.get("output"))
    texts = [leaf.get("dtype") for leaf in described if isinstance(leaf, Mapping)]
    dtypes = [getattr(torch, text.removeprefix("torch."), None) for text in texts if isinstance(text, str)]
    return [dtype for dtype in dtypes if isinstance(dtype, torch.dtype) and dtype.is_floating_point]


def draws_random_numbers(api: str, arguments: Arguments) -> bool:
    """Return True if a call draws random numbers: an active dropout, or an API that always draws them."""
    if "dropout" not in api:
        return rules.is_random(api, arguments.keywords)
    share, training = (
        arguments.keywords.get(name, arguments.positional[place] if place < len(arguments.positional) else default)
        for place, name, default in ((1, "p", 0.5), (2, "training", True))
    )
    return bool(share) and training is not False


def read_recorded_keywords(call: Call) -> dict[str, Any]:
    """Return the recorded values of the keywords of a call; the value of a tensor is None."""
    keywords = call.forward.get("input_kwargs")
    leaves = keywords.items() if isinstance(keywords, Mapping) else ()
    return {name: leaf.get("value") for name, leaf in leaves if isinstance(leaf, Mapping)}


def turn_off_randomness(api: str, arguments: Arguments) -> tuple[Message, ...]:
    """Turn off dropout and other randomness of a call, and return a message if an argument changed."""
    rule = rules("made_deterministic").get(api)
    if rule is None:
        return ()
    keyword, place, value = rule["keyword"], rule["position"], rule["value"]
    second: Any = arguments.positional[1] if len(arguments.positional) > 1 else None
    if "packed" in rule and hasattr(second, "is_floating_point") and not second.is_floating_point():
        place = rule["packed"]  # the second argument is batch_sizes, not the hidden state
    if keyword in arguments.keywords:
        original, arguments.keywords[keyword] = arguments.keywords[keyword], value
    elif place < len(arguments.positional):
        original, arguments.positional[place] = arguments.positional[place], value
    else:
        return ()
    return (DROPOUT_OFF,) if original != value else ()


def restore_arguments(api: str, arguments: Arguments, call: Call) -> None:
    """Restore what records cannot express: positional dtypes, tuples as indices and uninitialized inputs."""
    place = rules("dtype_by_position").get(api)
    if place is not None and place < len(arguments.positional) and arguments.positional[place] is None:
        dtypes = list_recorded_dtypes(call)
        if dtypes:
            arguments.positional[place] = dtypes[0]
    if arguments.positional and arguments.positional[0] is None and api.endswith("_"):
        arguments.positional[0] = _create_output_buffer(call)  # recorders do not record a buffer that the call fills
    rounding_rule = rules("rounded").get(api)
    if rounding_rule is not None:
        _round_number(arguments, rounding_rule)
    if api in ("__getitem__", "__setitem__") and len(arguments.positional) > 1:
        index = arguments.positional[1]
        if isinstance(index, list) and not _is_list_index(api, arguments.positional[0], index, call):
            arguments.positional[1] = tuple(index)


def _create_output_buffer(call: Call) -> Any:
    """Return a tensor of zeros with the shape of the first output; None if the shape was not recorded."""
    output = call.forward.get("output")
    leaf = output[0] if isinstance(output, list) and output else output
    dtypes = list_recorded_dtypes(call)
    if not isinstance(leaf, Mapping) or not isinstance(leaf.get("shape"), list):
        return None
    dtype = dtypes[0] if dtypes else getattr(torch, str(leaf.get("dtype")).removeprefix("torch."), None)
    check_tensor_memory(tuple(leaf["shape"]), getattr(dtype, "itemsize", 4), get_max_input_bytes())
    return torch.zeros(leaf["shape"], dtype=dtype)


def _round_number(arguments: Arguments, rule: Mapping[str, Any]) -> None:
    """Round a number to the dtype of the tensor into which the API writes it, as the API does."""
    first = arguments.positional[0] if arguments.positional else None
    if not isinstance(first, torch.Tensor) or not first.is_floating_point():
        return
    place: Any = rule["keyword"] if rule["keyword"] in arguments.keywords else rule["position"]
    holder: Any = arguments.keywords if isinstance(place, str) else arguments.positional
    if isinstance(place, int) and place >= len(holder):
        return
    if isinstance(holder[place], float):
        holder[place] = torch.tensor(holder[place], dtype=first.dtype).item()


def _is_list_index(api: str, tensor: torch.Tensor, index: list[Any], call: Call) -> bool:
    """Return True if an index was a list and not a tuple, according to the output shape of ``__getitem__``."""
    outputs = call.forward.get("output")
    shape = outputs[0].get("shape") if isinstance(outputs, list) and outputs and outputs[0] else None
    if api == "__setitem__" or shape is None or not all(isinstance(item, int) for item in index):
        return len(index) > tensor.ndim and None not in index
    try:
        return [*tensor[tuple(index)].shape] != [*shape]
    except (IndexError, TypeError):
        return True


# -- outputs that a training sent, in the structure in which a call returns them (docs/online.md) ---


RANDOM = "It draws random numbers, so what was sent cannot be computed again. SKIP."


def list_sent_outputs(call: Call, rebuilder: Rebuilder) -> list[Any]:
    """Return the sent outputs of a call's forward, depth first.

    Raises:
        Unbuildable: The data of one were not sent, or cannot be read.
    """
    outputs: list[Any] = []
    for number, leaf in enumerate(list_descriptions(call.forward.get("output"))):
        if not isinstance(leaf, Mapping):
            outputs.append(leaf)
        elif "dtype" in leaf:
            outputs.append(rebuilder.rebuild_tensor(leaf, f"{call.name}.forward.output.{number}").detach())
        else:
            outputs.append(decode_plain_value(leaf))
    return outputs


def arrange_leaves(leaves: list[Any], like: Any) -> Any:
    """Return leaves in the nested lists and dicts of another output; as they are if their number differs."""
    if len(leaves) != sum(1 for _ in _iterate_leaves(like)):
        return leaves
    return _fill_structure(iter(leaves), like)


def _fill_structure(left: Iterator[Any], like: Any) -> Any:
    if isinstance(like, list):
        return [_fill_structure(left, part) for part in like]
    if isinstance(like, dict):
        return {key: _fill_structure(left, part) for key, part in like.items()}
    return next(left)


def _iterate_leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _iterate_leaves(item)
    else:
        yield value
