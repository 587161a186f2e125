"""The methods of Graph that other modules attach at run time, for type checkers.

Signatures and docstrings are those of the functions. tests/ir/test_graph_methods.py compares this list with them.
"""

from graphcore import graph_methods, surgery_methods

class GraphMethods:
    """The base class of Graph, only for type checkers."""

    __setitem__ = graph_methods.store
    full = graph_methods.full
    range = graph_methods.range
    op = graph_methods.op
    subgraph = graph_methods.subgraph
    load = staticmethod(graph_methods.load)
    from_ir = staticmethod(graph_methods.from_ir)
    verify = graph_methods.verify
    copy = graph_methods.copy
    optimize = graph_methods.optimize
    to_onnx = graph_methods.to_onnx
    to_ir = graph_methods.to_ir
    export = graph_methods.export
    __str__ = graph_methods.text
    save_html = graph_methods.save_html
    view = graph_methods.view
    _repr_html_ = graph_methods._repr_html_
    _repr_svg_ = graph_methods._repr_svg_
    __call__ = surgery_methods.call
    extract = surgery_methods.extract
    rename = surgery_methods.rename
    with_dims = surgery_methods.with_dims
    with_inputs = surgery_methods.with_inputs
    with_outputs = surgery_methods.with_outputs
    with_constants = surgery_methods.with_constants
    with_weights = surgery_methods.with_weights
    replace = surgery_methods.replace
    replace_all = surgery_methods.replace_all
    find_all = surgery_methods.find_all
    fold_preprocessing = surgery_methods.fold_preprocessing
    astype = surgery_methods.astype
    diff = surgery_methods.diff
