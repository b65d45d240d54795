"""Output formats of probe: xlsx, csv and jsonl, and the merging of results."""
