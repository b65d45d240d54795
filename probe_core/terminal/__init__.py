"""Parts that the commands of the core and of plugins share: exit codes, spellings, types and plugins of options."""
