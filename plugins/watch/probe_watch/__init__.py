"""Tools that observe a training without a second run to compare it with."""
