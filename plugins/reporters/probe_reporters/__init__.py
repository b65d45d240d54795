"""The output formats that ship with probe: one file a format."""
