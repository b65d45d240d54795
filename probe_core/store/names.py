"""Names of records and their parts (docs/formats.md#names).

APIs are called ``{Scope}.{name}.{count}.{forward|backward}``, modules
``Module.{path}.{Class}.{forward|backward}.{count}``, parameter gradients
``Module.{path}.{Class}.parameters_grad`` (newer recorders append ``.0``), saved variables
``{name}.{count}.debug``.
"""

from __future__ import annotations

import re

GRADIENT_PART = "parameters_grad"

_MODULE_COUNT = re.compile(r"\.(forward|backward)\.\d+$")
_API_COUNT = re.compile(r"\.\d+\.(forward|backward)$")
_DEBUG_COUNT = re.compile(r"\.\d+\.debug$")
_GRADIENT_COUNT = re.compile(r"\.parameters_grad\.0$")


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
