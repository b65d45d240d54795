"""Independent computations that results are checked against."""
