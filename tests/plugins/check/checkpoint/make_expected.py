"""Write what mindstudio-probe 8.3.3 answers on the cases; needs an environment that has it.

It imports a package ``megatron`` before it loads a file, for which an empty one is enough.

Usage: PYTHONPATH=tests python tests/plugins/check/checkpoint/make_expected.py ENV/bin/msprobe
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from support.runs.checkpoints import CASES, EXPECTED, write_pair


def main(msprobe: str) -> None:
    """Compare each case, and write the results; ``error`` for a case that ends with an error."""
    expected: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as room:
        package = Path(room, "packages", "megatron")
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        for case in CASES:
            target, golden = write_pair(case, Path(room, case))
            output = Path(room, case, "out.json")
            command = [
                msprobe,
                "-f",
                "pytorch",
                "config_check",
                "-c",
                str(target),
                str(golden),
                "-o",
                str(output),
            ]
            environment = {**os.environ, "PYTHONPATH": str(package.parent)}
            ended = subprocess.run(command, input="yes\n", env=environment, capture_output=True, text=True, check=False)
            expected[case] = json.loads(output.read_text()) if output.exists() else "error"
            print(case, ended.returncode, file=sys.stderr)
    EXPECTED.write_text(json.dumps(expected, separators=(",", ":"), sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
