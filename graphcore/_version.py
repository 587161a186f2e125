"""The version of the package and where it lies, for whatever must not import all of it."""

import os

__version__ = "0.1.0"

FOLDER = os.path.dirname(os.path.abspath(__file__))
