"""Independent computations that results are held against."""
