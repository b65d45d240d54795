"""A third-party metric: how many elements change their sign."""
