"""A recorded call as it is compared, and its name apart from its number."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

from probe_core.store.names import drop_count, is_gradient

_DATA_NAME = re.compile(r', "data_name": ("(?:[^"\\]|\\.)*")')
_MODULE_FORWARD = re.compile(r"\.forward\.\d+$")


@dataclass(frozen=True)
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

    @cached_property
    def is_forward(self) -> bool:
        """True for a call or module in the forward direction."""
        return not is_gradient(self.key) and (self.key.endswith(".forward") or self.is_module)

    @cached_property
    def is_module(self) -> bool:
        """True for the forward of a module."""
        return _MODULE_FORWARD.search(self.key) is not None

    @cached_property
    def kind(self) -> str:
        """Calls of the same kind may be partners: the name of an API, or a module with its path and count."""
        return get_kind(self.key)


def get_kind(key: str) -> str:
    """Return the kind of a record in the forward direction, by its name."""
    return key if _MODULE_FORWARD.search(key) else drop_count(key)


def drop_data_names(text: str, except_for: Collection[str | None] = ()) -> str:
    """Return the JSON of a record without the names of tensor files, except for some of them."""
    if '"data_name"' not in text:
        return text
    return _DATA_NAME.sub(lambda match: match[0] if json.loads(match[1]) in except_for else "", text)
