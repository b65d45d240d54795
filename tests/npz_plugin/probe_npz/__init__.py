"""A third-party reader: runs that a JAX user saved with numpy."""
