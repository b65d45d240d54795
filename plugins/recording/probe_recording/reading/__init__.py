"""The reader of run directories: records, call stacks, the tree of modules and tensors."""
