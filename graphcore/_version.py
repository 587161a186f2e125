"""The version and the folder of the package, for code that must not import all of it."""

import os

__version__ = "0.1.0"

FOLDER = os.path.dirname(os.path.abspath(__file__))
