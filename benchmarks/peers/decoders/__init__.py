"""Decoders in the engines that run them, each in a process of its own: one module an engine, and a worker for all.

`worker.py` opens an engine by the name of its module and takes orders by lines of JSON, so that engines take turns and
none shares memory or threads with another. A module imports its engine and nothing that the engine does not need: the
time from the start of its process to the first token is measured.
"""
