"""The last steps of a training in memory, and the rule by which they are written (docs/watch.md#the-moment-before)."""
