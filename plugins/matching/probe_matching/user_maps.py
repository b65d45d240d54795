"""The mapping files of users: APIs (``-am``), modules (``-cm``) and children of modules (``-lm``).

Their formats are those of docs/pairing.md#frameworks and docs/pairing.md#modules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from probe_core.errors import UserError, suggest_name
from probe_core.files.user_files import describe_yaml_error, parse_yaml, read_regular_file
from probe_matching.name_table import NameTable, SlotMap

VALUE_KINDS = ("args", "outputs", "parameters", "parameters_grad")
ENTRY_KEYS = ("ms_api", "pt_api", *(f"{side}_{kind}" for side in ("ms", "pt") for kind in VALUE_KINDS))


class ApiEntry:
    """An entry of an API mapping: two names, and the pairs of their values.

    Attributes:
        source: The API of ``ms_api``.
        target: The API of ``pt_api``.
        slots: The pairs of values; values that an entry with lists does not list have no partner.
    """

    def __init__(self, source: str, target: str, lists: Mapping[str, Mapping[str, str] | None]) -> None:
        self.source, self.target = source, target
        listed = any(pairs is not None for pairs in lists.values())
        none: Mapping[str, str] | None = {} if listed else None
        args, outputs, parameters, gradients = (lists[kind] for kind in VALUE_KINDS)
        self.slots = SlotMap(
            none if args is None else args,
            none if outputs is None else outputs,
            none if parameters is None else parameters,
            parameters or none if gradients is None else gradients,
        )


def read_api_mapping(path: Path) -> tuple[list[ApiEntry], list[str]]:
    """Return the entries of an API mapping file, and sentences on the entries that are left out.

    Raises:
        UserError: The file cannot be read, or is not a list of entries.
    """
    return create_api_entries(_load(path, "-am"), f"The API mapping {path}")


def create_api_entries(value: Any, subject: str) -> tuple[list[ApiEntry], list[str]]:
    """Return the entries in a parsed yaml file, without those whose lists differ in length.

    Args:
        value: The content of the file.
        subject: The subject of messages, such as ``The API mapping mine.yaml``.

    Returns:
        The entries, and sentences on those that are left out.

    Raises:
        UserError: ``value`` is not a list of entries.
    """
    if value is None:
        return [], []
    if not isinstance(value, list):
        raise UserError(f"{subject} is not a list of entries.", _API_MAPPING_FIX)
    entries: list[ApiEntry] = []
    problems: list[str] = []
    for number, item in enumerate(value):
        where = f"{subject}, entry {number + 1}"
        if not isinstance(item, dict) or not all(isinstance(item.get(k), str) for k in ("ms_api", "pt_api")):
            raise UserError(f"{where} does not name ms_api and pt_api.", _API_MAPPING_FIX)
        for key in item:
            if key not in ENTRY_KEYS:
                close = suggest_name(str(key), ENTRY_KEYS)
                raise UserError(
                    f'{where} has an unknown key "{key}".',
                    f"Did you mean {close}? Known keys:" if close else "Known keys:",
                    ENTRY_KEYS,
                )
        try:
            lists = {kind: _parse_pairs(item.get(f"ms_{kind}"), item.get(f"pt_{kind}")) for kind in VALUE_KINDS}
        except ValueError as error:
            problems.append(f"{where} ({item['ms_api']}) is left out: {error}.")
            continue
        entries.append(ApiEntry(item["ms_api"], item["pt_api"], lists))
    return entries, problems


def add_entries(table: NameTable, entries: Sequence[ApiEntry]) -> NameTable:
    """Return the table with entries of a user or a plugin, which replace its own."""
    apis, slots = dict(table.source.apis), dict(table.source.slots)
    for entry in entries:
        apis[entry.source] = table.target.word(entry.target)
        slots[entry.source] = entry.slots
    return table.with_source(apis=apis, slots=slots)


_API_MAPPING_FIX = "Write a list of entries: - {ms_api: Mint.add, pt_api: Tensor.add, ms_args: [0], pt_args: [0]}."


def _parse_pairs(source: Any, target: Any) -> dict[str, str] | None:
    if source is None and target is None:
        return None
    sources, targets = source or [], target or []
    if not (isinstance(sources, list) and isinstance(targets, list)):
        raise ValueError("its values are not lists")
    if len(sources) != len(targets):
        raise ValueError(f"it lists {len(sources)} values on one side and {len(targets)} on the other")
    return {str(source_name): str(partner) for source_name, partner in zip(sources, targets)}


def read_cell_mapping(path: Path) -> dict[str, str]:
    """Return the pairs of a cell mapping file: ``module.Class`` of the target, or a part, and the golden's.

    Raises:
        UserError: The file cannot be read, or does not map texts to texts.
    """
    example = "Write a line 'fc1.Dense: linear1.Linear' for each module."
    return _parse_names(_load(path, "-cm"), f"The cell mapping {path}", example)


def read_layer_mapping(path: Path) -> dict[str, dict[str, str]]:
    """Return the children of each class, with the names of their partners.

    Raises:
        UserError: The file cannot be read, or does not map classes to children with names.
    """
    subject = f"The layer mapping {path}"
    example = "Write a line 'TransformerLayer: {attention: self_attn}' for each class."
    value = _load(path, "-lm")
    if not isinstance(value, dict):
        raise UserError(f"{subject} does not map classes to their children.", example)
    return {str(name): _parse_names(children, f"{subject}, {name},", example) for name, children in value.items()}


def _parse_names(value: Any, subject: str, example: str) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not _are_names((*value, *value.values())):
        raise UserError(f"{subject} does not map names to names.", example)
    return {str(name): str(partner) for name, partner in value.items()}


def _are_names(items: Iterable[object]) -> bool:
    return all(isinstance(item, (str, int)) and not isinstance(item, bool) for item in items)


def _load(path: Path, option: str) -> Any:
    import yaml

    try:
        return parse_yaml(read_regular_file(path).decode("utf-8"))
    except OSError as error:
        raise UserError(
            f"The mapping file {path} cannot be read: {error.strerror or error}.",
            f"Check the path given with {option}; {option} without a file must follow the two runs.",
        ) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(
            f"The mapping file {path} is not valid yaml{describe_yaml_error(error)}.", "Correct the file."
        ) from None
