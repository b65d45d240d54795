"""What the diagnosis gives to comparisons."""
