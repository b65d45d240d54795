"""Generator of ``probe_mindspore/names/apis.yaml``, by reflection over both frameworks.

Run ``python make_names.py`` with mindspore and torch installed when either has a new release. Names that
reflection cannot find are in ``exceptions.yaml`` beside the result, with their reasons.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import mindspore
import torch
import yaml
from mindspore import mint, ops

NAMES_DIRECTORY = Path(__file__).parent / "probe_mindspore" / "names"
EXCEPTIONS = yaml.safe_load((NAMES_DIRECTORY / "exceptions.yaml").read_text("utf-8"))
SCOPES: dict[str, Any] = {"Torch": torch, "Functional": torch.nn.functional, "Tensor": torch.Tensor}
"""Scopes of PyTorch; the common name of an operation is in the first scope that has it."""

SOURCE_SCOPES: dict[str, Any] = {
    "Mint": mint,
    "MintFunctional": mint.nn.functional,
    "Functional": ops,
    "Tensor": mindspore.Tensor,
}
"""Scopes of MindSpore."""

ALIAS_PATTERN = re.compile(r"Alias (?:for|of) :(?:func|meth):`~?\.?torch\.(\w+)`")
TORCH_RELEASE = torch.__version__.partition("+")[0]
HEAD = 400
"""Number of characters at the beginning of a docstring that are searched for ``ALIAS_PATTERN``."""

Names = dict[str, dict[str, list[str]]]
"""Names by two scopes: that of one framework, and the common one."""


def is_function(owner: Any, name: str) -> bool:
    """Return True for a public function, and for an operator of tensors."""
    attribute = getattr(owner, name, None)
    if not callable(attribute) or inspect.isclass(attribute) or inspect.ismodule(attribute):
        return False
    return not name.startswith("_") or name in EXCEPTIONS["operators"]


def list_functions(owner: Any) -> list[str]:
    """Return the names of the functions of a module, or of the methods of a class."""
    return sorted(name for name in dir(owner) if is_function(owner, name))


def find_common_name(name: str) -> str | None:
    """Return the common name of PyTorch's operation with this name; None if there is none."""
    name = EXCEPTIONS["operators"].get(name, name)
    for scope, owner in SCOPES.items():
        if is_function(owner, name):
            alias = ALIAS_PATTERN.search((getattr(owner, name).__doc__ or "")[:HEAD])
            if scope != "Functional" and alias and alias[1] != name and is_function(torch, alias[1]):
                return f"Torch.{alias[1]}"
            return f"{scope}.{name}"
    return None


def list_spellings() -> tuple[Names, dict[str, str]]:
    """Return all other names of PyTorch's operations: those equal but for the scope, and the others."""
    named = (
        (f"{scope}.{name}", find_common_name(name)) for scope, owner in SCOPES.items() for name in list_functions(owner)
    )
    return split_names((spelling, common) for spelling, common in named if common and spelling != common)


def list_pairs() -> tuple[Names, dict[str, str]]:
    """Return MindSpore's APIs with PyTorch's names: those equal but for the scope, and the others."""
    renamed: dict[str, str] = EXCEPTIONS["renamed"]
    others = set(EXCEPTIONS["others"])
    named: list[tuple[str, str]] = []
    for scope, owner in SOURCE_SCOPES.items():
        for name in list_functions(owner):
            source_name = f"{scope}.{name}"
            if source_name in others:
                continue
            common = (
                find_common_name(renamed[source_name].partition(".")[2])
                if source_name in renamed
                else find_common_name(name)
            )
            if common is not None:
                named.append((source_name, common))
    return split_names(named)


def split_names(named: Iterable[tuple[str, str]]) -> tuple[Names, dict[str, str]]:
    """Return pairs of names that are equal but for the scope, by both scopes, and the other pairs."""
    same_names: Names = {}
    renamed: dict[str, str] = {}
    for source_name, common in named:
        (scope, name), (common_scope, bare) = source_name.split("."), common.split(".")
        if name == bare:
            same_names.setdefault(scope, {}).setdefault(common_scope, []).append(name)
        else:
            renamed[source_name] = common
    return same_names, renamed


# -- arguments -------------------------------------------------------------------------------------


def read_signature(function: Callable[..., Any]) -> list[str] | None:
    """Return the positional parameters of a Python function; None if they are not known."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (ValueError, TypeError):
        return None
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return None
    return [parameter.name for parameter in parameters if parameter.kind is not parameter.KEYWORD_ONLY]


def read_schema(name: str) -> list[str] | None:
    """Return the positional parameters of an operator of PyTorch; those of all overloads, joined by ``|``."""
    if name.endswith("_") or not hasattr(torch.ops.aten, name):
        return None
    packet = getattr(torch.ops.aten, name)
    columns: list[list[str]] = []
    for overload in packet.overloads():
        arguments = getattr(packet, overload)._schema.arguments
        if not {"self", "input", "tensors", "condition"} & {argument.name for argument in arguments}:
            continue
        if any("Dimname" in str(argument.type) for argument in arguments) or "out" in overload:
            continue
        positional = [argument for argument in arguments if not argument.kwarg_only]
        for position, argument in enumerate(positional):
            parameter = "input" if argument.name == "self" else argument.name
            if position == len(columns):
                columns.append([])
            if parameter not in columns[position]:
                columns[position].append(parameter)
    return ["|".join(column) for column in columns] or None


def list_parameters(owner: Any, name: str) -> list[str] | None:
    """Return the names of the arguments of a function of PyTorch; None if they are not known."""
    names = read_signature(getattr(owner, name)) if owner is not torch.Tensor else None
    names = names if names is not None else read_schema(name)
    if names is None:
        return None
    names = [EXCEPTIONS["words"].get(parameter, parameter) if parameter == "self" else parameter for parameter in names]
    if name in EXCEPTIONS["spread"]:
        at = EXCEPTIONS["spread"][name]
        names = [*names[:at], f"{names[at]}*"]
    return names


def list_target_arguments() -> dict[str, list[str]]:
    """Return the arguments of PyTorch's operations by common name; by another name only if they differ."""
    arguments_of: dict[str, list[str]] = {}
    for scope, owner in SCOPES.items():
        for name in list_functions(owner):
            parameters = list_parameters(owner, name)
            common = find_common_name(name)
            if parameters is None or common is None or f"{scope}.{name}" in EXCEPTIONS["no_arguments"]:
                continue
            if f"{scope}.{name}" == common:
                arguments_of[common] = parameters
            elif common in arguments_of and not have_common_names(parameters, arguments_of[common]):
                arguments_of[f"{scope}.{name}"] = parameters
    return {name: parameters for name, parameters in arguments_of.items() if len(parameters) > 1}


def have_common_names(first: Sequence[str], second: Sequence[str]) -> bool:
    """Return True if two lists of arguments have a name in common at each position."""
    return all(
        set(left.rstrip("*").split("|")) & set(right.rstrip("*").split("|")) for left, right in zip(first, second)
    )


def list_source_arguments(target: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return the arguments of MindSpore's APIs whose names or positions differ from PyTorch's."""
    same_names, renamed = list_pairs()
    commons = {
        f"{scope}.{name}": f"{common_scope}.{name}"
        for scope, others in same_names.items()
        for common_scope, names in others.items()
        for name in names
    } | renamed
    arguments_of: dict[str, list[str]] = {}
    for source_name, common in commons.items():
        scope, name = source_name.split(".")
        of_torch = target.get(common)
        parameters = read_signature(getattr(SOURCE_SCOPES[scope], name))
        if of_torch is None or parameters is None:
            continue
        parameter_names = [translate_parameter(parameter, of_torch) for parameter in parameters]
        if name in EXCEPTIONS["spread"]:
            at = EXCEPTIONS["spread"][name]
            parameter_names = [*parameter_names[:at], f"{parameter_names[at]}*"]
        if not have_common_names(parameter_names, of_torch) or any("|" in parameter for parameter in parameter_names):
            arguments_of[source_name] = parameter_names
    return arguments_of


def translate_parameter(parameter: str, of_torch: Sequence[str]) -> str:
    """Return the name of a parameter, after the common one and ``|`` if that is another."""
    target_names = {name for column in of_torch for name in column.rstrip("*").split("|")}
    if parameter in target_names:
        return parameter
    for common, others in EXCEPTIONS["synonyms"].items():
        if parameter in others and common in target_names:
            return f"{common}|{parameter}"
    return parameter


# -- writing ---------------------------------------------------------------------------------------


def main() -> None:
    """Write ``apis.yaml``."""
    same_names, renamed = list_pairs()
    spelled, aliases = list_spellings()
    target = list_target_arguments()
    source = list_source_arguments(target)
    used = {find_common_name(name) for names in same_names.values() for bare in names.values() for name in bare}
    used |= set(renamed.values())
    target = {
        name: parameters
        for name, parameters in target.items()
        if name in used or find_common_name(name.split(".")[1]) in used
    }
    lines = [
        f"# Written by make_names.py from mindspore {mindspore.__version__} and torch {TORCH_RELEASE}.",
        "# same: names equal but for the scope; renamed: other pairs; arguments: by position.",
        "mindspore:",
        *format_block("same", same_names),
        *format_mapping("renamed", renamed),
        *format_arguments("arguments", source),
        "pytorch:",
        *format_block("same", spelled),
        *format_mapping("renamed", aliases),
        *format_arguments("arguments", target),
    ]
    (NAMES_DIRECTORY / "apis.yaml").write_text("\n".join(lines) + "\n", "utf-8")


def format_block(key: str, names: Names) -> Iterable[str]:
    """Yield the lines of names by two scopes, as yaml."""
    yield f"  {key}:"
    for scope, others in names.items():
        yield f"    {scope}:"
        for common_scope, bare in others.items():
            yield f"      {common_scope}:"
            yield from wrap_list(bare, "        ")


def wrap_list(names: Sequence[str], indent: str) -> Iterable[str]:
    """Yield the lines of a list, as yaml."""
    line = f"{indent}["
    for name in names:
        piece = f"{quote_yaml(name)}, "
        if len(line) + len(piece) > 110:
            yield line.rstrip()
            line = f"{indent} "
        line += piece
    yield f"{line.rstrip(', ')}]"


def format_mapping(key: str, pairs: dict[str, str]) -> Iterable[str]:
    """Yield the lines of pairs of names, as yaml."""
    yield f"  {key}:" if pairs else f"  {key}: {{}}"
    for source_name, common in pairs.items():
        yield f"    {source_name}: {common}"


def format_arguments(key: str, lists: dict[str, list[str]]) -> Iterable[str]:
    """Yield the lines of the parameters of each API, as yaml."""
    yield f"  {key}:"
    for name, parameters in lists.items():
        yield f"    {name}: [{', '.join(map(quote_yaml, parameters))}]"


def quote_yaml(text: str) -> str:
    """Return a text that yaml reads as this text; quoted if need be."""
    return text if yaml.safe_load(text) == text and not text.endswith("*") else f'"{text}"'


if __name__ == "__main__":
    main()
