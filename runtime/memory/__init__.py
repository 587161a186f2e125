"""Memory of sessions: huge pages, and weights that kernels reorder."""
