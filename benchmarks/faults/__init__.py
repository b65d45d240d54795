"""A benchmark of known numerical faults: does the first line of a comparison name each of them?

Every case records a golden and a target run of a tiny model, built from a configuration with the same
weights and batch (``record``), compares them as a user would (``score``), and checks each statement
against the recorded tensors (``truth``). The faults were found in real projects; the controls differ by
rounding or by nothing, and must raise nothing.

    python3 make.py bench faults                      # all cases, in a temporary directory (1 GB)
    python3 make.py bench faults --work /tmp/faults   # keep the recorded runs there and use them again
    python3 make.py bench faults F01 T03 split-matmul # some cases, with what probe says of them
    python3 make.py bench faults frozen               # the cases put aside in frozen.py, to be scored once
    python3 make.py bench faults held                 # the cases put aside in held.py, to be scored once
    python3 make.py bench faults --reference          # compare with the golden in float64 as the reference
    python3 make.py bench faults --reference better   # 15 pairs in which the target is the better one
    python3 make.py bench faults --json result.json   # every number, for a program
    MSPROBES=msprobe/bin/msprobe python3 make.py bench faults    # msprobe on the same cases, too

The last needs a msprobe whose environment has torch and transformers; ``msprobe_score`` tells how it is read.
Transformers is needed: it is in requirements-dev.txt. A case is *right* if its first cause names the fault,
*within three* if the second or third does, *silent* if a fault raises no cause; a cause on a control is an
*alarm*, and a statement that the recorded tensors contradict is a *false reason*.
"""
