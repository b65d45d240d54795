"""``python -m probe_core.cli`` is ``probe``."""

from probe_core.cli.main import main

main()
