"""Write what mindstudio-probe answers on the cases and on recorded runs; needs an environment that has it.

Usage: PYTHONPATH=tests python tests/plugins/watch/nan_analysis/make_expected.py ENV/bin/msprobe
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from support.runs.nan_dumps import DATA, EXPECTED, RECORDED, load_cases, write_case


def steps_in(directory: Path) -> Iterator[tuple[str, Path]]:
    """Yield the step directory of each case and of each recorded run."""
    for name, case in load_cases().items():
        yield name, write_case(case, directory / name / "step0")
    with zipfile.ZipFile(DATA / "runs-8.3.3.zip") as archive:
        archive.extractall(directory / "runs")
    for name in RECORDED:
        run, _, side = name.rpartition("/")
        yield name, directory / "runs" / run / "v8.3.3" / f"{side}_dump" / "step0"


def main(msprobe: str) -> None:
    """Run ``nan_analyze`` on each step, and write the answers; None for no file, a text for an error."""
    expected: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as directory:
        for name, step in steps_in(Path(directory)):
            output = Path(directory, "out", name)
            command = [msprobe, "-f", "pytorch", "nan_analyze", "-i", str(step), "-o", str(output)]
            ended = subprocess.run(command, capture_output=True, text=True, check=False)
            files = [*output.glob("anomaly_analyze_*.json")] if output.is_dir() else []
            if ended.returncode:
                expected[name] = "error"
            else:
                expected[name] = json.loads(files[0].read_text()) if files else None
            print(name, ended.returncode, file=sys.stderr)
    EXPECTED.write_text(json.dumps(expected, separators=(",", ":"), sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
