"""What a MindSpore program does, seen while it runs: API calls, Cells, and the gradients of both."""
