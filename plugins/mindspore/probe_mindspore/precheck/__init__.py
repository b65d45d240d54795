"""The pre-check of MindSpore: recorded calls run alone here, held against torch in raised precision."""
