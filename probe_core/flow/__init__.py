"""The stages of a comparison: open, match, measure, judge, report."""
