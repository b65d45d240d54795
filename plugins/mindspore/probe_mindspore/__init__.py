"""probe for MindSpore: reads recorded runs without importing mindspore.

The recorder and the pre-check of ``mindspore.mint`` will live here; so far this distribution
holds the reader of ``dump.json`` with ``.npy`` files.
"""
