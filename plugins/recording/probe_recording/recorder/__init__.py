"""The recorder of a process, from its start to its end, and programs that use it."""
