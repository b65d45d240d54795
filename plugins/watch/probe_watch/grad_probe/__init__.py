"""Statistics and signs of gradients at each step of an optimizer, and the comparison of two runs."""
