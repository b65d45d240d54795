"""A resumed run against the uninterrupted one: what was not restored (``--resumed``)."""
