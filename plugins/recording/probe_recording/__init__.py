"""What recorders share whatever the framework: configuration, filters, leaves, stacks, the directory."""
