"""The training monitor: figures of gradients, parameters, moments and activations (docs/monitor.md)."""
