"""Small models of every kind, their mutations, and the process that loads and runs those."""
