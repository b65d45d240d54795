"""Dumps of the ACL level: the reader, layouts of the device, and conversion to ``.npy``."""
