"""Batches on a cluster: the rows of a Ray Dataset, run by workers that each load the model once."""
