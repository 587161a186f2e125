"""Adapters that express operators of other opsets by those of the one that graphs are written with."""
