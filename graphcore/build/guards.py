"""The texts and numbers of guards, which tell whoever runs a graph what one refused: `ops.shared.rebind`."""

GUARD = "rebind "
"""The prefix of the name of a guard, which is the only text that a runtime shows."""

AXIS = 10**12
"""A size s of axis a that was stated otherwise is -(a + 1) * AXIS - s in the shape that the runtime refuses."""

RANK = 2
"""A rank r that was stated otherwise is -RANK - r."""
