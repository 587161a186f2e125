"""Models of one node, one for each operator and dtype: which kernels run."""
