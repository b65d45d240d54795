"""Start of the recorder in processes that the user does not start (docs/launchers.md)."""
