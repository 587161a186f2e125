"""Random numbers from a counter, and draws from distributions."""
