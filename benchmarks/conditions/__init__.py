"""Benchmark of conditions and resumed runs: ``python3 make.py bench conditions``.

The benchmark uses the command line only. It records the programs in ``programs/`` with ``probe run``,
compares the runs with ``probe compare``, and reads the printed lines and ``answer_*.json``. The kinds are:

* ``conditions``: one condition differs. It must be named among the first line and three lines of conditions.
* ``seeds``: two seeds. No operator may be accused, and a seed, a random state or a batch must be named.
* ``equal``: repetitions of the same run. They must agree, without a line of conditions.
* ``secrets``: secrets in the environment and the configuration of git. No file may contain them.
* ``resume``: a resumed run that did not restore something. The first cause must name it.
"""
