"""Names of the files in a run directory, and of the fields in the header of its record files."""

FILES = ("dump.json", "debug.json")
TENSOR_DIRECTORY = "dump_tensor_data"
STACK_FILE = "stack.json"
CONSTRUCT_FILE = "construct.json"
ERROR_FILE = "dump_error_info.log"
PACKED_FILE = "tensors.safetensors"
JOURNAL_FILE = "tensors.index.json"
OURS = "probe"
"""Header field of runs that probe itself recorded."""
UNFINISHED, LOST = "unfinished", "lost"
"""Fields within it: True if the step has not ended, and the error that prevented writing it completely."""
