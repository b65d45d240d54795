"""The commands of every installation: ``compare``, from the command line to the exit code, and ``plugins``."""
