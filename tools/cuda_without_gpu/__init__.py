"""onnxruntime-gpu on a machine without a GPU: its real CUDA provider, on libraries of CUDA that compute nothing.

`python -m tools.cuda_without_gpu table` makes the table of kernels `runtime/lowering/targets/cuda.json` out of the
kernel registries of releases; `python -m tools.cuda_without_gpu check` opens a session for every op, cell, model and
fusion. What a kernel computes, and how fast, only a GPU tells: docs/howto/cuda.md.

It needs Linux, a C compiler (cc) and binutils, and downloads onnxruntime-gpu, some 250 MB for each release.
"""
