"""A running batch of texts: requests join and leave between steps, prefixes are shared, tokens are looked up."""
