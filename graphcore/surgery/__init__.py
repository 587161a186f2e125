"""Call, cut and edit graphs: each function returns a new graph, or adds to one. See docs/howto/edit_model.md."""

from graphcore.surgery.astype import astype as astype
from graphcore.surgery.calling import call as call
from graphcore.surgery.copying import compose as compose
from graphcore.surgery.diff import diff as diff
from graphcore.surgery.interface import extract as extract
from graphcore.surgery.interface import rename as rename
from graphcore.surgery.interface import with_constants as with_constants
from graphcore.surgery.interface import with_inputs as with_inputs
from graphcore.surgery.interface import with_outputs as with_outputs
from graphcore.surgery.interface import with_weights as with_weights
from graphcore.surgery.products import fold_preprocessing as fold_preprocessing
from graphcore.surgery.replacing import find_all as find_all
from graphcore.surgery.replacing import replace as replace
from graphcore.surgery.replacing import replace_all as replace_all
from graphcore.surgery.sizes import with_dims as with_dims
