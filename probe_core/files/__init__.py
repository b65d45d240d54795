"""Safe reading and writing of files of any content."""
