"""The former name of the package of standards."""

from __future__ import annotations

from importlib import import_module

import pytest


def test_former_name_of_the_package_works_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match=r"probe_metrics\.precheck is called probe_metrics\.standards now"):
        former = import_module("probe_metrics.precheck")
    assert former.__path__ == import_module("probe_metrics.standards").__path__
    assert import_module("probe_metrics.precheck.ulp").UlpError.__name__ == "UlpError"
