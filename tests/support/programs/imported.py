"""Modules that processes of tests import before they are forked, once for all of them."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from importlib.util import find_spec

PACKAGES = (
    "probe_core.cli", "probe_core.flow", "probe_core.matching", "probe_core.store", "probe_ranks", "probe_matching",
    "probe_diagnosis", "probe_recording.reading", "probe_page",
)  # fmt: skip
NAMES = (
    *PACKAGES, "probe_core.library", "probe_reporters.spreadsheet_text", "probe_metrics.hooks", "probe_reporters.hooks",
    "probe_explain.hooks", "probe_online.hooks", "probe_watch.hooks", "probe_check.hooks", "probe_workflow.hooks", "probe_mindspore.hooks", "probe_pytorch.hooks", "probe_pytorch.reader",
    "probe_legacy.reading.hooks", "probe_precheck.hooks", "probe_dask.hooks", "probe_mindspore.reader",
    "xlsxwriter", "jinja2", "email.parser", "decimal", "upath",
)  # fmt: skip
"""Modules and packages that comparing imports. None of them looks at the environment when it is imported, as
probe_metrics.kernel and probe_reporters.lines do."""
CHECKED_WITH = (
    "torch", "torch.fx.experimental.symbolic_shapes", "probe_pytorch.precheck.runner", "probe_precheck.checking",
)  # fmt: skip
"""Modules that a worker of the pre-check imports in addition."""


READ = (
    "probe_core.plugins.distributions:_load_distributions", "probe_diagnosis.limits:limits", "probe_diagnosis.phases.phase_distances:load_limits",
    "probe_diagnosis.timeline.floors:load_floors", "probe_diagnosis.timeline.order:_load_apis",
    "probe_diagnosis.collectives.calls:load_apis", "probe_page.language:load_words",
)  # fmt: skip
"""Functions without arguments whose results are kept: data of our packages."""


@cache
def compared_with() -> tuple[str, ...]:
    """Return the names of the modules of ``NAMES``, those of packages one by one."""
    found = []
    for name in filter(_is_installed, NAMES):
        found.append(name)
        if name in PACKAGES:
            modules = pkgutil.walk_packages(import_module(name).__path__, f"{name}.")
            found += [module.name for module in modules if not module.name.endswith("__main__")]
    return tuple(found)


def _is_installed(name: str) -> bool:
    """Return True if a module can be found; an environment may lack the package that it is in."""
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False
