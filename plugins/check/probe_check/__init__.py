"""Tools that check what surrounds a training."""
