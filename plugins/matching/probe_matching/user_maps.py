"""What a person says of names: the files of ``-am``, ``-cm`` and ``-lm``, checked (spec/compare 4.6, 4.7)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from probe_core.errors import UserError, meant
from probe_core.files.given import parse_yaml, read_given, yaml_problem
from probe_matching.name_table import NameTable, SlotMap

KINDS = ("args", "outputs", "parameters", "parameters_grad")
KEYS = ("ms_api", "pt_api", *(f"{side}_{kind}" for side in ("ms", "pt") for kind in KINDS))


class ApiEntry:
    """One entry of an API mapping: two names, and which values of both are the same.

    Attributes:
        source: The API of ``ms_api``.
        target: That of ``pt_api``.
        slots: Which values of the one are which of the other; what an entry does not list has no partner.
    """

    def __init__(self, source: str, target: str, lists: Mapping[str, Mapping[str, str] | None]) -> None:
        self.source, self.target = source, target
        listed = any(found is not None for found in lists.values())
        none: Mapping[str, str] | None = {} if listed else None
        args, outputs, parameters, gradients = (lists[kind] for kind in KINDS)
        self.slots = SlotMap(
            none if args is None else args,
            none if outputs is None else outputs,
            none if parameters is None else parameters,
            parameters or none if gradients is None else gradients,
        )


def read_api_mapping(path: Path) -> tuple[list[ApiEntry], list[str]]:
    """The entries of an API mapping file, and what is wrong with those that are left out.

    Raises:
        UserError: The file cannot be read, or is no list of such entries.
    """
    return api_entries(_load(path, "-am"), f"The API mapping {path}")


def api_entries(value: Any, what: str) -> tuple[list[ApiEntry], list[str]]:
    """The entries in ``value``, as yaml gives them; entries whose lists differ in length are left out."""
    if value is None:
        return [], []
    if not isinstance(value, list):
        raise UserError(f"{what} is no list of entries.", _API_EXAMPLE)
    entries: list[ApiEntry] = []
    problems: list[str] = []
    for number, item in enumerate(value):
        where = f"{what}, entry {number + 1}"
        if not isinstance(item, dict) or not all(isinstance(item.get(k), str) for k in ("ms_api", "pt_api")):
            raise UserError(f"{where} does not name ms_api and pt_api.", _API_EXAMPLE)
        for key in item:
            if key not in KEYS:
                close = meant(str(key), KEYS)
                raise UserError(
                    f'{where} has an unknown key "{key}".',
                    f"Did you mean {close}? Known keys:" if close else "Known keys:",
                    KEYS,
                )
        try:
            lists = {kind: _pairs(item.get(f"ms_{kind}"), item.get(f"pt_{kind}")) for kind in KINDS}
        except ValueError as error:
            problems.append(f"{where} ({item['ms_api']}) is left out: {error}.")
            continue
        entries.append(ApiEntry(item["ms_api"], item["pt_api"], lists))
    return entries, problems


def with_entries(table: NameTable, entries: Sequence[ApiEntry]) -> NameTable:
    """Return the table with entries of a person, or of a plugin, in place of its own."""
    apis, slots = dict(table.source.apis), dict(table.source.slots)
    for entry in entries:
        apis[entry.source] = table.target.word(entry.target)
        slots[entry.source] = entry.slots
    return table.with_source(apis=apis, slots=slots)


_API_EXAMPLE = (
    "Write a list of entries: - {ms_api: Mint.add, pt_api: Tensor.add, ms_args: [0], pt_args: [0]}."
)


def _pairs(ours: Any, theirs: Any) -> dict[str, str] | None:
    if ours is None and theirs is None:
        return None
    one, two = ours or [], theirs or []
    if not (isinstance(one, list) and isinstance(two, list)):
        raise ValueError("what it lists are no lists")
    if len(one) != len(two):
        raise ValueError(f"it lists {len(one)} values on one side and {len(two)} on the other")
    return {str(mine): str(other) for mine, other in zip(one, two)}


def read_cell_mapping(path: Path) -> dict[str, str]:
    """The pairs of a cell mapping file: ``module.Class`` of the target, or a part of it, and the golden's.

    Raises:
        UserError: The file cannot be read, or does not map texts to texts.
    """
    example = "Write a line 'fc1.Dense: linear1.Linear' a module."
    return _texts(_load(path, "-cm"), f"The cell mapping {path}", example)


def read_layer_mapping(path: Path) -> dict[str, dict[str, str]]:
    """The children of each class, with the names of their partners.

    Raises:
        UserError: The file cannot be read, or does not map classes to such children.
    """
    what, example = f"The layer mapping {path}", "Write 'TransformerLayer: {attention: self_attn}' a class."
    value = _load(path, "-lm")
    if not isinstance(value, dict):
        raise UserError(f"{what} does not map classes to their children.", example)
    return {str(name): _texts(children, f"{what}, {name},", example) for name, children in value.items()}


def _texts(value: Any, what: str, example: str) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not _are_words((*value, *value.values())):
        raise UserError(f"{what} does not map names to names.", example)
    return {str(one): str(other) for one, other in value.items()}


def _are_words(items: Iterable[object]) -> bool:
    return all(isinstance(item, (str, int)) and not isinstance(item, bool) for item in items)


def _load(path: Path, option: str) -> Any:
    import yaml

    try:
        return parse_yaml(read_given(path).decode("utf-8"))
    except OSError as error:
        raise UserError(
            f"The mapping file {path} cannot be read: {error.strerror or error}.",
            f"Check the path given with {option}; a bare {option} stands behind the two runs.",
        ) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(
            f"The mapping file {path} is not valid yaml{yaml_problem(error)}.", "Mend it there."
        ) from None
