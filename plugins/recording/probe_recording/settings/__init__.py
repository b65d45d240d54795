"""The settings of a recording, as read from ``config.json`` and given to the debugger."""
