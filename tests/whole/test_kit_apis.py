"""The public names of kits (``api.py``): few, importable, and the only ones that plugins of others use."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from support import ROOT

KITS = ("probe_recording", "probe_matching", "probe_precheck", "probe_diagnosis", "probe_ranks", "probe_reporters")
MAX_NAMES = 30


@pytest.mark.parametrize("kit", KITS)
def test_api_has_few_names_and_gives_them_without_a_warning(kit: str, recwarn: pytest.WarningsRecorder) -> None:
    api = import_module(f"{kit}.api")
    assert len(api.__all__) <= MAX_NAMES
    assert all(hasattr(api, name) for name in api.__all__)
    assert not recwarn.list


def test_names_for_recorders_of_frameworks_are_few_and_no_others() -> None:
    framework, api = import_module("probe_recording.framework"), import_module("probe_recording.api")
    assert len(framework.__all__) <= MAX_NAMES
    assert not {*framework.__all__} & {*api.__all__}
    assert all(hasattr(framework, name) for name in framework.__all__)


@pytest.mark.parametrize("kit", KITS)
def test_no_public_or_former_name_is_a_module_of_the_kit(kit: str) -> None:
    """An import of the module would replace the name."""
    package = import_module(kit)
    modules = {path.stem for path in Path(str(package.__file__)).parent.iterdir()}
    assert not modules & {*getattr(package, "__all__", ()), *list_former_names(kit)}


@pytest.mark.parametrize("kit", KITS)
def test_former_names_work_with_a_warning(kit: str) -> None:
    package = import_module(kit)
    former, renamed = list_former_names(kit), read_exporter(kit).get("renamed", {})
    for name in (*former, *renamed):
        present = renamed.get(name, name)
        with pytest.warns(DeprecationWarning, match=rf"{kit}\.{name} is (not in {kit}\.api|called {present})"):
            value = getattr(package, name)
        home = f"{kit}.{former[present]}" if present in former else f"{kit}.api"
        assert value is getattr(import_module(home), present), name


def test_unknown_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'probe_matching\.api' has no attribute 'Unknown'"):
        import_module("probe_matching.api").Unknown  # noqa: B018


@pytest.mark.parametrize("place", ["tests/sample_plugin", "tests/npz_plugin", "docs"])
def test_plugins_of_others_import_only_public_names(place: str) -> None:
    for file in (ROOT / place).rglob("*.md" if place == "docs" else "*.py"):
        for module, names in list_imports(file):
            if module.partition(".")[0] in KITS:
                is_kit_of_tests = module.endswith(".testing")
                assert is_kit_of_tests or names == ["api"] or module.endswith(".api"), (file, module)
                assert is_kit_of_tests or {*names} <= {"api", *import_module(module).__all__}, (file, module, names)


def test_product_imports_no_former_name() -> None:
    """Names of a kit are imported from its ``api`` or from their modules, not from the package."""
    for kit in KITS:
        folder = Path(str(import_module(kit).__file__)).parent
        modules = {path.stem for path in folder.iterdir()}
        for file in (ROOT / "plugins").rglob("*.py"):
            for module, names in list_imports(file):
                assert module != kit or {*names} <= modules, (file, names)


def list_imports(file: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the module and the names of each import of names in a module, or in the Python blocks of a page."""
    text = file.read_text("utf-8")
    sources = re.findall(r"```python\n(.*?)```", text, re.S) if file.suffix == ".md" else [text]
    for source in sources:
        for match in re.finditer(r"^\s*from (\w+(?:\.\w+)*) import (?:\(([^)]*)\)|([^\n#]*))", source, re.M):
            yield match[1], [name.strip() for name in (match[2] or match[3]).split(",") if name.strip()]


def read_exporter(kit: str) -> dict[str, Any]:
    """Return the keyword arguments of the exporter of a kit; none if its package exports nothing."""
    tree = ast.parse(Path(str(import_module(kit).__file__)).read_text("utf-8"))
    calls = (node.value for node in tree.body if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call))
    return {str(keyword.arg): ast.literal_eval(keyword.value) for call in calls for keyword in call.keywords}


def list_former_names(kit: str) -> dict[str, str]:
    """Return the module of each name that a kit no longer exports."""
    former = read_exporter(kit).get("former", {})
    return {name: module for module, names in former.items() for name in names.split()}
