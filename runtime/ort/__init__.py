"""onnxruntime: its sessions, providers, values, and what the installed release can do."""
