"""Shape rules of operators, one per operator, for reading models, for surgery and for ops.

Each module has the rules of a family. An `OperatorRow` refers to its rule; elementwise operators need none.
"""
