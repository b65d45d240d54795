"""Stand-ins for devices and frameworks that are not at hand."""
