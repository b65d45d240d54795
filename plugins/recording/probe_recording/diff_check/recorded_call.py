"""A recorded call as it is compared, and its name apart from its number."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from probe_core.store.names import drop_count, is_forward, is_module
from probe_recording.values.leaves import MAX_NAMES

_DATA_NAME = re.compile(r', "data_name": ("(?:[^"\\]|\\.)*")')


class CallForm(NamedTuple):
    """Facts that follow from the name of a record.

    Attributes:
        is_forward: True for a call or module in the forward direction.
        is_module: True for the forward of a module.
        kind: Calls of the same kind may be partners: the name of an API, or a module with its path and count.
    """

    is_forward: bool
    is_module: bool
    kind: str


@lru_cache(MAX_NAMES)
def get_form(key: str) -> CallForm:
    """Return the facts that follow from the name of a record; the steps of a training repeat most names."""
    is_module_forward = is_module(key) and is_forward(key)
    return CallForm(is_forward(key), is_module_forward, key if is_module_forward else drop_count(key))


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A record of the run under test.

    Attributes:
        key: The name of the record.
        text: Its JSON, without the names of tensor files.
        parent: The record of the surrounding module; None outside of modules.
        number: Its position in the order of time.
    """

    key: str
    text: str
    parent: str | None = None
    number: int = 0

    @property
    def form(self) -> CallForm:
        """Facts that follow from the name of the record."""
        return get_form(self.key)


def drop_data_names(text: str, except_for: Collection[str | None] = ()) -> str:
    """Return the JSON of a record without the names of tensor files, except for some of them."""
    if '"data_name"' not in text:
        return text
    if not except_for:
        return _DATA_NAME.sub("", text)
    return _DATA_NAME.sub(lambda match: match[0] if json.loads(match[1]) in except_for else "", text)
