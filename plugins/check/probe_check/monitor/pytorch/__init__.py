"""Observation of a PyTorch training."""
