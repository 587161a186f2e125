"""The methods of Graph that other modules attach at run time, for type checkers.

Signatures and docstrings are those of the functions. tests/ir/test_graph_methods.py compares this list with them.
"""

from graphcore import decompile, graph_methods
from graphcore.analysis import bounds
from graphcore.onnx.read import ir_models, reader
from graphcore.surgery import astype, interface, products, replacing, sizes
from graphcore.surgery.diff import compare

class GraphMethods:
    """The base class of Graph, only for type checkers."""

    __setitem__ = graph_methods.store
    full = graph_methods.full
    range = graph_methods.range
    op = graph_methods.op
    subgraph = graph_methods.subgraph
    load = staticmethod(reader.load)
    from_ir = staticmethod(ir_models.from_ir)
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
    __call__ = graph_methods.call
    extract = interface.extract
    rename = interface.rename
    with_dims = sizes.with_dims
    with_inputs = interface.with_inputs
    with_outputs = interface.with_outputs
    with_constants = interface.with_constants
    with_weights = interface.with_weights
    replace = replacing.replace
    replace_all = replacing.replace_all
    find_all = replacing.find_all
    fold_preprocessing = products.fold_preprocessing
    astype = astype.astype
    diff = compare.diff
    bounds = bounds.bounds
    to_python = decompile.to_python
    with_fields = decompile.with_fields
