"""Pairing of the tensors of two checkpoints by name (docs/checkpoints.md#matching)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from probe_core.errors import UserError, find_nearest_names, format_count
from probe_core.files.user_files import describe_yaml_error, parse_yaml, read_regular_file

WRAPPER_COMPONENTS = frozenset(
    {"module", "_orig_mod", "_fsdp_wrapped_module", "_forward_module", "_checkpoint_wrapped_module"}
)
"""Components of names that wrappers add: for data parallelism, compilation, sharding, checkpointing."""
MAX_LISTED = 5
_EXAMPLE = "Write a line 'encoder.fc1.weight: encoder.linear1.weight' for each tensor, or for a part of names."


def pair_names(
    target: Collection[str], golden: Collection[str], mapping: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the golden name for each name of the target that has a partner, in the order of the target.

    Args:
        target: The names in the target.
        golden: The names in the golden checkpoint.
        mapping: Names of the target, or parts of them, with those of the golden checkpoint.

    Raises:
        UserError: The mapping has an entry that fits no tensor.
    """
    renamed = _apply_mapping(target, set(golden), mapping or {})
    pairs = {name: golden_name for name in target if (golden_name := renamed.get(name, name)) in set(golden)}
    taken = set(pairs.values())
    by_bare_name = _index_unique_names(name for name in golden if name not in taken)
    unpaired_names = _index_unique_names(name for name in target if name not in pairs)
    for bare, name in unpaired_names.items():
        if bare in by_bare_name:
            pairs[name] = by_bare_name[bare]
    return {name: pairs[name] for name in target if name in pairs}


def _index_unique_names(names: Iterable[str]) -> dict[str, str]:
    """Return the names by their form without wrappers, if this form is unique."""
    by_bare_name: dict[str, list[str]] = {}
    for name in names:
        by_bare_name.setdefault(drop_wrappers(name), []).append(name)
    return {bare: group[0] for bare, group in by_bare_name.items() if len(group) == 1}


def drop_wrappers(name: str) -> str:
    """Return a name without the components of wrappers and a leading ``model``."""
    parts = [part for part in name.split(".") if part not in WRAPPER_COMPONENTS]
    return ".".join(parts[1:] if len(parts) > 1 and parts[0] == "model" else parts)


def read_mapping(path: Path) -> dict[str, str]:
    """Return the entries of a mapping file.

    Raises:
        UserError: The file cannot be read, or does not map names to names.
    """
    import yaml

    subject = f"The mapping {path}"
    try:
        value: Any = parse_yaml(read_regular_file(path).decode("utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not in UTF-8"
        raise UserError(f"{subject} cannot be read: {reason}.", "Check the path and its permissions.") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(f"{subject} is not valid yaml{describe_yaml_error(error)}.", _EXAMPLE) from None
    if value is None:
        return {}
    entries = (*value, *value.values()) if isinstance(value, dict) else (None,)
    if not all(isinstance(word, (str, int)) and not isinstance(word, bool) for word in entries):
        raise UserError(f"{subject} does not map names to names.", _EXAMPLE)
    return {str(name): str(partner) for name, partner in value.items()}


def _apply_mapping(target: Collection[str], golden: set[str], mapping: Mapping[str, str]) -> dict[str, str]:
    """Return the names of the target that a mapping changes; a whole name wins over a part."""
    parts = {part: partner for part, partner in mapping.items() if part not in target}
    used: set[str] = set()
    renamed: dict[str, str] = {}
    for name in target:
        if name in mapping:
            renamed[name] = mapping[name]
            continue
        for part, partner in parts.items():
            if part and part in name:
                renamed[name] = name.replace(part, partner, 1)
                used.add(part)
                break
    unused = [part for part in parts if part not in used]
    _check_known(unused, target, "target", "Use the names of tensors, or parts of them")
    unknown = [mapping[name] for name in target if name in mapping and mapping[name] not in golden]
    _check_known(unknown, golden, "golden checkpoint", "Use the names of tensors")
    return renamed


def _check_known(unknown: list[str], candidates: Collection[str], owner: str, fix: str) -> None:
    if unknown:
        raise UserError(
            f"The mapping names {format_count(len(unknown), 'tensor')} that the {owner} does not have.",
            f"{fix}. Unknown:",
            _describe_unknown(unknown, candidates),
        )


def _describe_unknown(names: list[str], candidates: Collection[str]) -> list[str]:
    lines = []
    for name in names[:MAX_LISTED]:
        close = find_nearest_names(name, list(candidates), 1)
        lines.append(f'"{name}"' + (f"  (nearest: {close[0]})" if close else ""))
    return lines
