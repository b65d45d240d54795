"""Reports on a check for CI systems."""
