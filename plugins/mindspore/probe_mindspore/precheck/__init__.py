"""Pre-check of MindSpore: recorded calls, run one by one and compared with torch in a raised precision."""
