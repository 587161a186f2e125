"""The shapes of what operators give, one rule an operator: for reading, for typing again after surgery, and for ops.

A rule of a family stands in the file of that name; a `Row` names its rule, and elementwise operators need not.
"""
