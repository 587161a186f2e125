"""Tests of more than one machine: the protocol, Ray, and what other servers read."""
