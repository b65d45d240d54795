"""Comparison of two paths, and the files of its result."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from probe_check.config_check import result_file, workbook
from probe_check.config_check.comparison import ConfigComparison, compare_packs
from probe_check.config_check.pack import Pack, open_pack
from probe_check.config_check.pack_file import PACK_SUFFIX
from probe_check.config_check.rules import load_rules
from probe_check.config_check.unpacking import unpack
from probe_core.errors import UserError
from probe_core.files.atomic import make_directory, remove_leftovers


def compare_and_write(
    bench_path: Path, cmp_path: Path, output: Path, framework: str
) -> tuple[ConfigComparison, list[Path]]:
    """Compare two packs, write the results, and return the comparison and the paths of its files.

    Args:
        bench_path: The reference: a zip file or a directory.
        cmp_path: The pack to check.
        output: The directory of the results, which is created.
        framework: The framework, whose package is compared.

    Raises:
        UserError: A path is not a pack, both have nothing in common, or the results cannot be written.
    """
    with closing(open_required_pack(bench_path)) as bench, closing(open_required_pack(cmp_path)) as cmp:
        comparison = compare_packs(bench, cmp, framework)
        if not any(result.is_compared for result in comparison.results):
            raise UserError(
                f"{bench_path} and {cmp_path} have nothing in common that can be compared.",
                "Collect both in the same way.",
            )
        make_directory(output)
        remove_leftovers(output)
        for pack, name in ((bench, "bench"), (cmp, "cmp")):
            if pack.path.is_file():
                unpack(pack, output / name, load_rules())
    written = [output / workbook.WORKBOOK_FILE, output / result_file.RESULT_FILE]
    workbook.write_workbook(written[0], comparison)
    result_file.write_result(written[1], comparison)
    return comparison, written


def is_pack(path: Path) -> bool:
    """Return True if a path is a pack, or a recorded run with conditions."""
    pack = _find_pack(path)
    if pack is not None:
        pack.close()
    return pack is not None


def _find_pack(path: Path) -> Pack | None:
    """Return the pack at a path; None if it is something else."""
    pack = open_pack(path) if path.is_dir() or path.suffix == PACK_SUFFIX else None
    if pack is not None and not pack.list_items():
        pack.close()
        return None
    return pack


def open_required_pack(path: Path) -> Pack:
    """Return a pack.

    Raises:
        UserError: The path is no pack; directories and other files may be checkpoints.
    """
    if not path.exists():
        raise UserError(f"{path} not found.", "Check the path.")
    pack = _find_pack(path)
    if pack is None:
        raise UserError(
            f"{path} is neither a pack of config-check nor a recorded run with conditions.",
            "To compare two checkpoints, run: probe checkpoint A B",
        )
    return pack
