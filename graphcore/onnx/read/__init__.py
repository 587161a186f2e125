"""Read a ModelProto as a Graph: checks, types, and conversion to the opset of Graphs."""
