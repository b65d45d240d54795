"""The paths of golden files."""

from __future__ import annotations

from pathlib import Path

from pytest_probe.paths import find_golden_path, format_path
from support.cases import every


@every(
    "node_id, name",
    [
        ("a/test_it.py::test_block", "test_block.json"),
        ("a/test_it.py::TestBlock::test_block", "TestBlock.test_block.json"),
        ("a/test_it.py::test_block[float32-2]", "test_block-float32-2.json"),
        ("a/test_it.py::test_block[../x]", "test_block-.._x-ec0dab3e.json"),
    ],
)
def test_path_follows_the_test(node_id: str, name: str) -> None:
    path = find_golden_path(Path("a/test_it.py"), node_id)
    assert path.parent == Path("a/goldens/test_it")
    assert path.name.split("-")[0] == name.split("-")[0] and len(path.name) == len(name)


def test_no_two_tests_share_a_file() -> None:
    names = ["a b", "a_b", "a/b", "A", "a", "x" * 300, "x" * 301, "é", "è"]
    paths = {find_golden_path(Path("test_it.py"), f"test_it.py::test[{name}]").name.lower() for name in names}
    assert len(paths) == len(names) and max(map(len, paths)) < 130


def test_path_is_shown_from_the_root() -> None:
    assert format_path(Path("/project/tests/goldens/a.json"), Path("/project")) == "tests/goldens/a.json"
    assert format_path(Path("/elsewhere/a.json"), Path("/project")) == "/elsewhere/a.json"
