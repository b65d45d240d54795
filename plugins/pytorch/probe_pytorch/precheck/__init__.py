"""The pre-check of PyTorch runs, which runs each recorded call alone, on a device and in higher precision."""
