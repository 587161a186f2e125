"""Items of an iterable, run as rows of batches: `Model.map`."""
