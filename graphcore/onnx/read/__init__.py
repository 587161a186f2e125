"""From a ModelProto to a Graph: checks, types, and nodes brought to the opset of Graphs."""
