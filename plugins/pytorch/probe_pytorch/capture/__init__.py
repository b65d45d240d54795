"""Seeing the calls of a training step: functions, modules, operators, collectives, gradients."""
