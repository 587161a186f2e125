"""Operators of other domains, declared by their users: `gc.custom_op`."""
