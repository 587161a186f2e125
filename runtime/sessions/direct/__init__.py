"""Direct loads: third-party models that need no lowering run without a Graph."""
