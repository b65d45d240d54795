"""The commands of the interactive parse tool, as sub-commands of ``probe parse`` and in a shell."""
