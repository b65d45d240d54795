"""A plugin that cannot be imported."""

raise ImportError("libnothing.so.1: cannot open shared object file")
