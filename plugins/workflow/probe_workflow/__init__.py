"""Check of a training script against a golden recording (docs/workflow.md)."""
