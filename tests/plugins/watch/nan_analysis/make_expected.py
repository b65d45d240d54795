"""Write what mindstudio-probe answers on the cases; needs an environment that has it.

Usage: python tests/plugins/watch/nan_analysis/make_expected.py ENV/bin/msprobe
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from nan_dumps import load_cases, write_case


def main(msprobe: str) -> None:
    """Run ``nan_analyze`` on each case, and write the answers; None for no file, a text for an error."""
    expected: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as directory:
        for name, case in load_cases().items():
            step, output = Path(directory, name, "step0"), Path(directory, name, "out")
            write_case(case, step)
            framework = case.get("head", {}).get("framework", "pytorch")
            command = [msprobe, "-f", framework, "nan_analyze", "-i", str(step), "-o", str(output)]
            ended = subprocess.run(command, capture_output=True, text=True, check=False)
            files = [*output.glob("anomaly_analyze_*.json")] if output.is_dir() else []
            if ended.returncode:
                expected[name] = "error"
            else:
                expected[name] = json.loads(files[0].read_text()) if files else None
            print(name, ended.returncode, list(expected[name] or ()), file=sys.stderr)
    path = Path(__file__).parents[3] / "data" / "nan-analyze-8.3.3.json"
    path.write_text(json.dumps(expected, separators=(",", ":"), sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
