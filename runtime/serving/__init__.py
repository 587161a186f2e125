"""Serving requests of many threads: a thread with a queue, deadlines of requests, and metrics."""
