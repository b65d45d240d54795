"""The pre-check of PyTorch runs: recorded calls, each run alone on a device and in higher precision."""
