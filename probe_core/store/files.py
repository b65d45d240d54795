"""Names of the files in a run directory, and of the fields at the head of its record files."""

FILES = ("dump.json", "debug.json")
TENSOR_DIRECTORY = "dump_tensor_data"
STACK_FILE = "stack.json"
CONSTRUCT_FILE = "construct.json"
ERROR_FILE = "dump_error_info.log"
PACKED_FILE = "tensors.safetensors"
JOURNAL_FILE = "tensors.index.json"
OURS = "probe"
"""The field at the head of a run that probe itself recorded."""
UNFINISHED, LOST = "unfinished", "lost"
"""In that field: the step was not ended (yet); why it could not be written to its end."""
