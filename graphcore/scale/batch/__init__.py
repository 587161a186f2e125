"""Batch inference on a cluster: workers of Ray Data, which each load the model once."""
