"""Functions of the drawing methods of Graph and Symbol, in one place to import from."""

from graphcore.view.data import Shown
from graphcore.view.html import save_html, view
from graphcore.view.notebook import graph_html, graph_svg, symbol_html, symbol_svg

__all__ = ["Shown", "graph_html", "graph_svg", "save_html", "symbol_html", "symbol_svg", "view"]
