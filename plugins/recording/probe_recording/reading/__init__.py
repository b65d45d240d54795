"""The run directory read: records, call stacks, modules around calls, tensors."""
