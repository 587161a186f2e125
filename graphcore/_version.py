"""The version of the package and the folders of its code, for code that must not import all of it."""

import os

__version__ = "0.1.0"

FOLDER = os.path.dirname(os.path.abspath(__file__))

PACKAGES = {
    name: os.path.join(FOLDER if os.path.isdir(os.path.join(FOLDER, name)) else os.path.dirname(FOLDER), name)
    for name in ("array_api", "models", "ops", "runtime")
}
"""The folders of packages that stand beside FOLDER in a checkout: inside of it where they are installed or linked."""
