"""Dumps of older tools: ptdbg_ascend and torch_npu.hooks."""
