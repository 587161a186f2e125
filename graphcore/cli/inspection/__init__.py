"""The facts of `graphcore inspect`, as plain values and as text."""
