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

NAMES = Path(__file__).parent / "probe_mindspore" / "names"
EXCEPTIONS = yaml.safe_load((NAMES / "exceptions.yaml").read_text("utf-8"))
SCOPES: dict[str, Any] = {"Torch": torch, "Functional": torch.nn.functional, "Tensor": torch.Tensor}
"""Scopes of PyTorch; the common name of an operation is in the first scope that has it."""

OWN: dict[str, Any] = {
    "Mint": mint,
    "MintFunctional": mint.nn.functional,
    "Functional": ops,
    "Tensor": mindspore.Tensor,
}
"""Scopes of MindSpore."""

ALIAS = re.compile(r"Alias (?:for|of) :(?:func|meth):`~?\.?torch\.(\w+)`")
RELEASE = torch.__version__.partition("+")[0]
HEAD = 400
"""Number of characters at the beginning of a docstring that are searched for ``ALIAS``."""

Names = dict[str, dict[str, list[str]]]
"""Names by two scopes: that of one framework, and the common one."""


def is_function(owner: Any, name: str) -> bool:
    """Return True for a public function, and for an operator of tensors."""
    attribute = getattr(owner, name, None)
    if not callable(attribute) or inspect.isclass(attribute) or inspect.ismodule(attribute):
        return False
    return not name.startswith("_") or name in EXCEPTIONS["operators"]


def functions(owner: Any) -> list[str]:
    """Return the names of the functions of a module, or of the methods of a class."""
    return sorted(name for name in dir(owner) if is_function(owner, name))


def word(name: str) -> str | None:
    """Return the common name of PyTorch's operation with this name; None if there is none."""
    name = EXCEPTIONS["operators"].get(name, name)
    for scope, owner in SCOPES.items():
        if is_function(owner, name):
            alias = ALIAS.search((getattr(owner, name).__doc__ or "")[:HEAD])
            if scope != "Functional" and alias and alias[1] != name and is_function(torch, alias[1]):
                return f"Torch.{alias[1]}"
            return f"{scope}.{name}"
    return None


def spellings() -> tuple[Names, dict[str, str]]:
    """Return all other names of PyTorch's operations: those equal but for the scope, and the others."""
    named = ((f"{scope}.{name}", word(name)) for scope, owner in SCOPES.items() for name in functions(owner))
    return sorted_names((own, common) for own, common in named if common and own != common)


def pairs() -> tuple[Names, dict[str, str]]:
    """Return MindSpore's APIs with PyTorch's names: those equal but for the scope, and the others."""
    renamed: dict[str, str] = EXCEPTIONS["renamed"]
    others = set(EXCEPTIONS["others"])
    named: list[tuple[str, str]] = []
    for scope, owner in OWN.items():
        for name in functions(owner):
            own = f"{scope}.{name}"
            if own in others:
                continue
            common = word(renamed[own].partition(".")[2]) if own in renamed else word(name)
            if common is not None:
                named.append((own, common))
    return sorted_names(named)


def sorted_names(named: Iterable[tuple[str, str]]) -> tuple[Names, dict[str, str]]:
    """Return pairs of names that are equal but for the scope, by both scopes, and the other pairs."""
    same: Names = {}
    renamed: dict[str, str] = {}
    for own, common in named:
        (scope, name), (other, bare) = own.split("."), common.split(".")
        if name == bare:
            same.setdefault(scope, {}).setdefault(other, []).append(name)
        else:
            renamed[own] = common
    return same, renamed


# -- arguments -------------------------------------------------------------------------------------


def signature(function: Callable[..., Any]) -> list[str] | None:
    """Return the positional parameters of a Python function; None if they are not known."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (ValueError, TypeError):
        return None
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return None
    return [parameter.name for parameter in parameters if parameter.kind is not parameter.KEYWORD_ONLY]


def schema(name: str) -> list[str] | None:
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
        given = [argument for argument in arguments if not argument.kwarg_only]
        for position, argument in enumerate(given):
            own = "input" if argument.name == "self" else argument.name
            if position == len(columns):
                columns.append([])
            if own not in columns[position]:
                columns[position].append(own)
    return ["|".join(column) for column in columns] or None


def parameters_of(owner: Any, name: str) -> list[str] | None:
    """Return the names of the arguments of a function of PyTorch; None if they are not known."""
    words = signature(getattr(owner, name)) if owner is not torch.Tensor else None
    words = words if words is not None else schema(name)
    if words is None:
        return None
    words = [EXCEPTIONS["words"].get(own, own) if own == "self" else own for own in words]
    if name in EXCEPTIONS["spread"]:
        at = EXCEPTIONS["spread"][name]
        words = [*words[:at], f"{words[at]}*"]
    return words


def target_arguments() -> dict[str, list[str]]:
    """Return the arguments of PyTorch's operations by common name; by another name only if they differ."""
    arguments_of: dict[str, list[str]] = {}
    for scope, owner in SCOPES.items():
        for name in functions(owner):
            own = parameters_of(owner, name)
            common = word(name)
            if own is None or common is None or f"{scope}.{name}" in EXCEPTIONS["no_arguments"]:
                continue
            if f"{scope}.{name}" == common:
                arguments_of[common] = own
            elif common in arguments_of and not agree(own, arguments_of[common]):
                arguments_of[f"{scope}.{name}"] = own
    return {name: own for name, own in arguments_of.items() if len(own) > 1}


def agree(own: Sequence[str], other: Sequence[str]) -> bool:
    """Return True if two lists of arguments have a name in common at each position."""
    return all(
        set(left.rstrip("*").split("|")) & set(right.rstrip("*").split("|"))
        for left, right in zip(own, other)
    )


def source_arguments(target: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return the arguments of MindSpore's APIs whose names or positions differ from PyTorch's."""
    same, renamed = pairs()
    commons = {
        f"{scope}.{name}": f"{other}.{name}"
        for scope, others in same.items()
        for other, names in others.items()
        for name in names
    } | renamed
    arguments_of: dict[str, list[str]] = {}
    for own, common in commons.items():
        scope, name = own.split(".")
        of_torch = target.get(common)
        given = signature(getattr(OWN[scope], name))
        if of_torch is None or given is None:
            continue
        words = [translated(parameter, of_torch) for parameter in given]
        if name in EXCEPTIONS["spread"]:
            at = EXCEPTIONS["spread"][name]
            words = [*words[:at], f"{words[at]}*"]
        if not agree(words, of_torch) or any("|" in parameter for parameter in words):
            arguments_of[own] = words
    return arguments_of


def translated(own: str, of_torch: Sequence[str]) -> str:
    """Return the name of a parameter, after the common one and ``|`` if that is another."""
    known = {name for column in of_torch for name in column.rstrip("*").split("|")}
    if own in known:
        return own
    for common, others in EXCEPTIONS["synonyms"].items():
        if own in others and common in known:
            return f"{common}|{own}"
    return own


# -- writing ---------------------------------------------------------------------------------------


def main() -> None:
    """Write ``apis.yaml``."""
    same, renamed = pairs()
    spelled, aliases = spellings()
    target = target_arguments()
    source = source_arguments(target)
    used = {word(name) for names in same.values() for bare in names.values() for name in bare}
    used |= set(renamed.values())
    target = {name: own for name, own in target.items() if name in used or word(name.split(".")[1]) in used}
    lines = [
        f"# Written by make_names.py from mindspore {mindspore.__version__} and torch {RELEASE}.",
        "# same: names equal but for the scope; renamed: other pairs; arguments: by position.",
        "mindspore:",
        *block("same", same),
        *mapping("renamed", renamed),
        *arguments("arguments", source),
        "pytorch:",
        *block("same", spelled),
        *mapping("renamed", aliases),
        *arguments("arguments", target),
    ]
    (NAMES / "apis.yaml").write_text("\n".join(lines) + "\n", "utf-8")


def block(key: str, names: Names) -> Iterable[str]:
    """Yield the lines of names by two scopes, as yaml."""
    yield f"  {key}:"
    for scope, others in names.items():
        yield f"    {scope}:"
        for other, bare in others.items():
            yield f"      {other}:"
            yield from wrapped(bare, "        ")


def wrapped(names: Sequence[str], indent: str) -> Iterable[str]:
    """Yield the lines of a list, as yaml."""
    line = f"{indent}["
    for name in names:
        piece = f"{quoted(name)}, "
        if len(line) + len(piece) > 110:
            yield line.rstrip()
            line = f"{indent} "
        line += piece
    yield f"{line.rstrip(', ')}]"


def mapping(key: str, pairs: dict[str, str]) -> Iterable[str]:
    """Yield the lines of pairs of names, as yaml."""
    yield f"  {key}:" if pairs else f"  {key}: {{}}"
    for own, common in pairs.items():
        yield f"    {own}: {common}"


def arguments(key: str, lists: dict[str, list[str]]) -> Iterable[str]:
    """Yield the lines of the parameters of each API, as yaml."""
    yield f"  {key}:"
    for name, own in lists.items():
        yield f"    {name}: [{', '.join(map(quoted, own))}]"


def quoted(text: str) -> str:
    """Return a text that yaml reads as this text; quoted if need be."""
    return text if yaml.safe_load(text) == text and not text.endswith("*") else f'"{text}"'


if __name__ == "__main__":
    main()
