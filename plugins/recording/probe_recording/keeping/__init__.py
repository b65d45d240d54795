"""The last steps of a training in memory, which are written at an event (docs/watch.md#the-moment-before)."""
