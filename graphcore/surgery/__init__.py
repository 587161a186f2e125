"""Call, cut and edit graphs: each function returns a new graph, or adds to one. See docs/howto/edit_model.md."""

from graphcore.surgery.astype import astype
from graphcore.surgery.calling import Results, call
from graphcore.surgery.copying import compose
from graphcore.surgery.diff import diff
from graphcore.surgery.interface import extract, rename, with_constants, with_inputs, with_outputs, with_weights
from graphcore.surgery.products import fold_preprocessing
from graphcore.surgery.replacing import find_all, replace, replace_all
from graphcore.surgery.sizes import with_dims

__all__ = [
    "Results",
    "astype",
    "call",
    "compose",
    "diff",
    "extract",
    "find_all",
    "fold_preprocessing",
    "rename",
    "replace",
    "replace_all",
    "with_constants",
    "with_dims",
    "with_inputs",
    "with_outputs",
    "with_weights",
]
