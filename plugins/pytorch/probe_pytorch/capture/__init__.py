"""The captures of a training step: functions, modules, operators, collectives and gradients."""
