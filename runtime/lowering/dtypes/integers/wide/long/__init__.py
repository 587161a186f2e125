"""Integers of thousands of bits, computed word by word in Scans: as many nodes for every width."""
