"""Facts of a step besides its calls: step phases, conditions, the batch."""
