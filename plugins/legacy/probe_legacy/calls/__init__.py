"""The calls of ptdbg_ascend and torch_npu.hooks, answered by probe's own recorder."""
