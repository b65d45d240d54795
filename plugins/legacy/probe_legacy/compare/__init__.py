"""The tables that the older tools wrote, to the cell."""
