"""Models in worker processes of their own, between walls: limits of memory and time, no files, no network."""
