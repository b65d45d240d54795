"""The directory of the program that records a script; it holds no module that could hide another one."""
