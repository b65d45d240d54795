"""``python -m probe_core.cli`` is ``probe``."""

import sys
from pathlib import Path

if sys.path[:1] == [str(Path.cwd())]:  # ``-m`` adds the working directory, which may belong to a stranger
    sys.path[0] = str(Path(sys.executable).parent)  # as for the script ``probe``

from probe_core.cli.main import main

main()
