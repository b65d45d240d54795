"""What the commands of the core and of plugins share: exit codes, and the spelling, types and plugins of options."""
