"""The graph: Graph, Symbol, Node, constants, bodies and functions, and transformations of graphs."""
