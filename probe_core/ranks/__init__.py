"""Which ranks and steps are compared, where, and what is finished."""
