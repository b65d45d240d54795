"""Readers of the text files that ptdbg_ascend and torch_npu.hooks named ``.pkl``."""
