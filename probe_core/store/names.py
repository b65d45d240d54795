"""Names of records and their parts (docs/formats.md#names).

APIs are called ``{Scope}.{name}.{count}.{forward|backward}``, modules
``Module.{path}.{Class}.{forward|backward}.{count}``, parameter gradients
``Module.{path}.{Class}.parameters_grad`` (newer recorders append ``.0``), saved variables
``{name}.{count}.debug``. Modules of frameworks that call them cells have the scope ``Cell``.
"""

from __future__ import annotations

import re
from typing import NamedTuple

FORWARD, BACKWARD = "forward", "backward"
GRADIENT_PART = "parameters_grad"
MODULE_SCOPE, CELL_SCOPE = "Module", "Cell"
"""Scopes of modules; frameworks that call modules cells use the second one."""

_MODULE_SUFFIX = re.compile(r"\.(?:forward|backward)\.\d+$|\.parameters_grad\b")
_PHASE = re.compile(r"\.(forward|backward)(?:\.\d+)?$")
_MODULE_KEY = re.compile(r"(?:Module|Cell)\.(?:(.*)\.)?([^.]+)\.(forward|backward|parameters_grad)(?:\.(\d+))?$")
_API_KEY = re.compile(r"(.+)\.(\d+)\.(forward|backward)$")
_MODULE_COUNT = re.compile(r"\.(forward|backward)\.\d+$")
_API_COUNT = re.compile(r"\.\d+\.(forward|backward)$")
_DEBUG_COUNT = re.compile(r"\.\d+\.debug$")
_GRADIENT_COUNT = re.compile(r"\.parameters_grad\.0$")


class ModuleKey(NamedTuple):
    """Parts of the name of a module's record.

    Attributes:
        path: The path of the module in the model, empty for the model.
        class_name: The name of its class.
        phase: ``forward``, ``backward``, or ``parameters_grad`` for the gradients of its parameters.
        number: The number of the call, or None if the name has none.
    """

    path: str
    class_name: str
    phase: str
    number: int | None

    @property
    def suffix(self) -> str:
        """The phase and number, such as ``forward.0``."""
        return self.phase if self.number is None else f"{self.phase}.{self.number}"


class ApiKey(NamedTuple):
    """Parts of the name of an API's record: the API with its scope, the number of the call, and the phase."""

    api: str
    number: int
    phase: str


def parse_module_key(key: str) -> ModuleKey | None:
    """Return the parts of the name of a module's record; None for other records."""
    match = _MODULE_KEY.match(key)
    if match is None:
        return None
    path, class_name, phase, count = match.groups()
    return ModuleKey(path or "", class_name, phase, None if count is None else int(count))


def parse_api_key(key: str) -> ApiKey | None:
    """Return the parts of the name of an API's record; None for modules and other records."""
    match = _API_KEY.match(key)
    if match is None or _MODULE_KEY.match(key):
        return None
    return ApiKey(match[1], int(match[2]), match[3])


def get_scope(name: str) -> str:
    """Return the first part of a name, such as ``Functional`` or ``Module``."""
    return name.partition(".")[0]


def has_module_scope(name: str) -> bool:
    """Return True for the name of a module, even without its phase and count, such as ``Module.fc.Linear``."""
    return get_scope(name) in (MODULE_SCOPE, CELL_SCOPE)


def is_module(key: str) -> bool:
    """Return True for a call of a module of any framework, and for the gradients of its parameters."""
    return _MODULE_SUFFIX.search(key) is not None


def get_phase(key: str) -> str:
    """Return ``forward`` or ``backward``; empty for gradients of parameters and saved variables."""
    match = _PHASE.search(key)
    return match[1] if match else ""


def is_forward(key: str) -> bool:
    """Return True for a call of the forward pass."""
    return get_phase(key) == FORWARD


def is_backward(key: str) -> bool:
    """Return True for a call of the backward pass."""
    return get_phase(key) == BACKWARD


def get_api_name(key: str) -> str:
    """Return the name of an API without its scope, or the class of a module; other names unchanged."""
    parts = key.split(".")
    return parts[-3] if len(parts) > 3 else key


def format_key(name: str, count: int, phase: str) -> str:
    """Return the name of a record.

    >>> format_key("Functional.relu", 0, "forward"), format_key("Module.fc.Linear", 0, "forward")
    ('Functional.relu.0.forward', 'Module.fc.Linear.forward.0')
    """
    return f"{name}.{phase}.{count}" if has_module_scope(name) else f"{name}.{count}.{phase}"


def is_gradient(key: str) -> bool:
    """Return True if a part of the name is ``parameters_grad`` (docs/pairing.md#gradients-of-parameters)."""
    return GRADIENT_PART in key.split(".")


def is_debug(key: str) -> bool:
    """Return True for a variable saved on its own."""
    return key.endswith(".debug")


def canonicalize(key: str) -> str:
    """Return the name that all recorder versions share: without the ``.0`` of parameter gradients."""
    return _GRADIENT_COUNT.sub(".parameters_grad", key)


def drop_count(key: str) -> str:
    """Return the name without its call count, for fuzzy matching (docs/pairing.md#fuzzy).

    ``Functional.conv2d.1.forward`` becomes ``Functional.conv2d.forward``, and
    ``Module.x.Cls.forward.3`` becomes ``Module.x.Cls.forward``: the class stays.
    """
    if _MODULE_COUNT.search(key):
        return key.rpartition(".")[0]
    if _API_COUNT.search(key):
        head, phase = key.rsplit(".", 1)
        return f"{head.rpartition('.')[0]}.{phase}"
    if _DEBUG_COUNT.search(key):
        return key.rsplit(".", 2)[0] + ".debug"
    return canonicalize(key)
