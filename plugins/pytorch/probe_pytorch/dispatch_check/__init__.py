"""Online check of dispatched operators against the CPU in higher precision (docs/dispatch-check.md)."""
