"""A plugin manager over given modules, for tests."""

from __future__ import annotations

import sys
from importlib import metadata
from types import ModuleType

from probe_core.plugins.manager import Manager


def manager_of(**modules: ModuleType) -> Manager:
    """A manager that knows the core, the given hook modules under the names given, and no other plugin.

    The hooks that installed kits declare are there.
    """
    points = []
    for name, module in modules.items():
        sys.modules.setdefault(module.__name__, module)
        points.append(metadata.EntryPoint(name=name, value=module.__name__, group="probe"))
    return Manager(points)
