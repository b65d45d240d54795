"""Writes ``probe_mindspore/names/apis.yaml`` by reflection over both frameworks.

``python make_names.py`` needs mindspore and torch, and is run when either has a new release. What reflection
cannot know stands in ``exceptions.yaml`` beside the result, with its reason.
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
"""PyTorch's scopes; an operation is called by the first that has it."""
OWN: dict[str, Any] = {
    "Mint": mint,
    "MintFunctional": mint.nn.functional,
    "Functional": ops,
    "Tensor": mindspore.Tensor,
}
ALIAS = re.compile(r"Alias (?:for|of) :(?:func|meth):`~?\.?torch\.(\w+)`")
RELEASE = torch.__version__.partition("+")[0]
HEAD = 400
"""Characters of a docstring within which an alias says that it is one."""
Names = dict[str, dict[str, list[str]]]


def is_function(owner: Any, name: str) -> bool:
    """True for public functions, and for the operators of a tensor."""
    found = getattr(owner, name, None)
    if not callable(found) or inspect.isclass(found) or inspect.ismodule(found):
        return False
    return not name.startswith("_") or name in EXCEPTIONS["operators"]


def functions(owner: Any) -> list[str]:
    """The functions of a module, or the methods of a class, by name."""
    return sorted(name for name in dir(owner) if is_function(owner, name))


def word(name: str) -> str | None:
    """What PyTorch's operation of this bare name is called in common words."""
    name = EXCEPTIONS["operators"].get(name, name)
    for scope, owner in SCOPES.items():
        if is_function(owner, name):
            alias = ALIAS.search((getattr(owner, name).__doc__ or "")[:HEAD])
            if scope != "Functional" and alias and alias[1] != name and is_function(torch, alias[1]):
                return f"Torch.{alias[1]}"
            return f"{scope}.{name}"
    return None


def spellings() -> tuple[Names, dict[str, str]]:
    """All spellings of PyTorch's operations: those of the same bare name by scope, and the others."""
    found = ((f"{scope}.{name}", word(name)) for scope, owner in SCOPES.items() for name in functions(owner))
    return sorted_names((own, common) for own, common in found if common and own != common)


def pairs() -> tuple[Names, dict[str, str]]:
    """MindSpore's APIs that PyTorch has under the same bare name, and those with another."""
    renamed: dict[str, str] = EXCEPTIONS["renamed"]
    others = set(EXCEPTIONS["others"])
    found: list[tuple[str, str]] = []
    for scope, owner in OWN.items():
        for name in functions(owner):
            own = f"{scope}.{name}"
            if own in others:
                continue
            common = word(renamed[own].partition(".")[2]) if own in renamed else word(name)
            if common is not None:
                found.append((own, common))
    return sorted_names(found)


def sorted_names(found: Iterable[tuple[str, str]]) -> tuple[Names, dict[str, str]]:
    """Names by both scopes where the bare name is the same, and the other pairs."""
    same: Names = {}
    renamed: dict[str, str] = {}
    for own, common in found:
        (scope, name), (other, bare) = own.split("."), common.split(".")
        if name == bare:
            same.setdefault(scope, {}).setdefault(other, []).append(name)
        else:
            renamed[own] = common
    return same, renamed


# -- arguments -------------------------------------------------------------------------------------


def signature(function: Callable[..., Any]) -> list[str] | None:
    """The parameters of a Python function that may be given by position."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (ValueError, TypeError):
        return None
    if any(one.kind is one.VAR_POSITIONAL for one in parameters):
        return None
    return [one.name for one in parameters if one.kind is not one.KEYWORD_ONLY]


def schema(name: str) -> list[str] | None:
    """The parameters of an operator of PyTorch by position, those of all overloads joined by ``|``."""
    if name.endswith("_") or not hasattr(torch.ops.aten, name):
        return None
    packet = getattr(torch.ops.aten, name)
    columns: list[list[str]] = []
    for overload in packet.overloads():
        arguments = getattr(packet, overload)._schema.arguments
        if not {"self", "input", "tensors", "condition"} & {one.name for one in arguments}:
            continue
        if any("Dimname" in str(one.type) for one in arguments) or "out" in overload:
            continue
        given = [one for one in arguments if not one.kwarg_only]
        for position, one in enumerate(given):
            own = "input" if one.name == "self" else one.name
            if position == len(columns):
                columns.append([])
            if own not in columns[position]:
                columns[position].append(own)
    return ["|".join(column) for column in columns] or None


def parameters_of(owner: Any, name: str) -> list[str] | None:
    """What PyTorch calls the arguments of one of its functions."""
    found = signature(getattr(owner, name)) if owner is not torch.Tensor else None
    found = found if found is not None else schema(name)
    if found is None:
        return None
    found = [EXCEPTIONS["words"].get(one, one) if one == "self" else one for one in found]
    if name in EXCEPTIONS["spread"]:
        at = EXCEPTIONS["spread"][name]
        found = [*found[:at], f"{found[at]}*"]
    return found


def target_arguments() -> dict[str, list[str]]:
    """The arguments of PyTorch's operations, by common name, and by others where they differ."""
    found: dict[str, list[str]] = {}
    for scope, owner in SCOPES.items():
        for name in functions(owner):
            own = parameters_of(owner, name)
            common = word(name)
            if own is None or common is None or f"{scope}.{name}" in EXCEPTIONS["no_arguments"]:
                continue
            if f"{scope}.{name}" == common:
                found[common] = own
            elif common in found and not agree(own, found[common]):
                found[f"{scope}.{name}"] = own
    return {name: own for name, own in found.items() if len(own) > 1}


def agree(own: Sequence[str], other: Sequence[str]) -> bool:
    """True where each position has a name in common."""
    return all(
        set(one.rstrip("*").split("|")) & set(two.rstrip("*").split("|")) for one, two in zip(own, other)
    )


def source_arguments(target: dict[str, list[str]]) -> dict[str, list[str]]:
    """The arguments of MindSpore's APIs, where they are called or placed otherwise than PyTorch's."""
    same, renamed = pairs()
    commons = {
        f"{scope}.{name}": f"{other}.{name}"
        for scope, others in same.items()
        for other, names in others.items()
        for name in names
    } | renamed
    found: dict[str, list[str]] = {}
    for own, common in commons.items():
        scope, name = own.split(".")
        theirs = target.get(common)
        given = signature(getattr(OWN[scope], name))
        if theirs is None or given is None:
            continue
        words = [translated(one, theirs) for one in given]
        if name in EXCEPTIONS["spread"]:
            at = EXCEPTIONS["spread"][name]
            words = [*words[:at], f"{words[at]}*"]
        if not agree(words, theirs) or any("|" in one for one in words):
            found[own] = words
    return found


def translated(own: str, theirs: Sequence[str]) -> str:
    """A parameter's name with the common one, where that is another."""
    known = {one for column in theirs for one in column.rstrip("*").split("|")}
    if own in known:
        return own
    for common, others in EXCEPTIONS["synonyms"].items():
        if own in others and common in known:
            return f"{common}|{own}"
    return own


# -- writing ---------------------------------------------------------------------------------------


def main() -> None:
    """Write the file."""
    same, renamed = pairs()
    spelled, aliases = spellings()
    target = target_arguments()
    source = source_arguments(target)
    used = {word(name) for names in same.values() for bare in names.values() for name in bare}
    used |= set(renamed.values())
    target = {name: own for name, own in target.items() if name in used or word(name.split(".")[1]) in used}
    lines = [
        f"# Written by make_names.py from mindspore {mindspore.__version__} and torch {RELEASE}.",
        "# Names of one bare name, by scope; other pairs; the arguments by position (see exceptions.yaml).",
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
    """Names by two scopes, as yaml."""
    yield f"  {key}:"
    for scope, others in names.items():
        yield f"    {scope}:"
        for other, bare in others.items():
            yield f"      {other}:"
            yield from wrapped(bare, "        ")


def wrapped(names: Sequence[str], indent: str) -> Iterable[str]:
    """A list over several lines."""
    line = f"{indent}["
    for name in names:
        piece = f"{quoted(name)}, "
        if len(line) + len(piece) > 110:
            yield line.rstrip()
            line = f"{indent} "
        line += piece
    yield f"{line.rstrip(', ')}]"


def mapping(key: str, pairs: dict[str, str]) -> Iterable[str]:
    """Pairs of names, a line each."""
    yield f"  {key}:" if pairs else f"  {key}: {{}}"
    for own, common in pairs.items():
        yield f"    {own}: {common}"


def arguments(key: str, lists: dict[str, list[str]]) -> Iterable[str]:
    """The parameters of each API, a line each."""
    yield f"  {key}:"
    for name, own in lists.items():
        yield f"    {name}: [{', '.join(map(quoted, own))}]"


def quoted(text: str) -> str:
    """A text that yaml does not take for something else."""
    return text if yaml.safe_load(text) == text and not text.endswith("*") else f'"{text}"'


if __name__ == "__main__":
    main()
