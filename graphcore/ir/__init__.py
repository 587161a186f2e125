"""The graph itself: Graph, Symbol, Node, constants, bodies, functions, and how a graph is walked and rewritten."""
