"""The run directory: its names and layout, reading its versions, writing atomically."""
