"""The command ``compare``: from the command line to the exit code."""
