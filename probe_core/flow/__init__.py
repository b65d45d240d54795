"""The way of a comparison: open, match, measure, judge, report."""
