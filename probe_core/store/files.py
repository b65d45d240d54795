"""Names of the files in a run directory."""

DEFAULT_RECORD_FILES = ("dump.json", "debug.json")
TENSOR_DIRECTORY = "dump_tensor_data"
STACK_FILE = "stack.json"
CONSTRUCT_FILE = "construct.json"
CONDITIONS_FILE = "conditions.json"
ERROR_FILE = "dump_error_info.log"
