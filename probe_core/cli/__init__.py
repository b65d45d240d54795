"""The command line: one file a command, each parses, plans, calls the library, and exits."""

from probe_core.cli.main import main

__all__ = ["main"]
