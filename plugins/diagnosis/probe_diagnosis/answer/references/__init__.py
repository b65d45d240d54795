"""Further runs and further passes over the runs of a comparison: the baseline and the reference."""
