"""A comparison as one page for the browser."""
