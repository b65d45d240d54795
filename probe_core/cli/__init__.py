"""The program ``probe``, and its command ``compare``. All other commands are contributions like those of plugins."""

from probe_core.cli.main import main

__all__ = ["main"]
