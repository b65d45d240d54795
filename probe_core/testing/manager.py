"""A plugin manager for tests, with given modules only."""

from __future__ import annotations

import sys
from importlib import metadata
from types import ModuleType

from probe_core.plugins.manager import Manager


def manager_of(**modules: ModuleType) -> Manager:
    """Return a manager with the core and the given modules of hooks, by plugin name, as its only plugins.

    The hooks that installed kits declare are available.
    """
    points = []
    for name, module in modules.items():
        sys.modules.setdefault(module.__name__, module)
        points.append(metadata.EntryPoint(name=name, value=module.__name__, group="probe"))
    return Manager(points)
