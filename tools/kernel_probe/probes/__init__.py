"""The probes of each kind of operator, and what a probe is."""
