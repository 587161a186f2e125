"""Workarounds: edits that keep onnxruntime from taking what was lowered for something else."""
