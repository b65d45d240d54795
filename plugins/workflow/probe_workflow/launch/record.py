"""The command ``probe`` as a file, which a launcher such as torchrun runs in place of the user's script.

The interpreter puts the directory of the file on the import path, and not the working directory.
"""

import sys

try:
    from probe_core.cli.main import main
except ModuleNotFoundError as error:
    if error.name != "probe_core":
        raise
    sys.exit(f"error: probe is not installed for {sys.executable}, so it cannot record the script there.")

if __name__ == "__main__":
    main()
