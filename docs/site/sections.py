"""The extension of mkdocstrings that puts docstrings into the form of the site."""

from __future__ import annotations

from typing import Any

import griffe

from docs.site.docstrings import markdown


class Sections(griffe.Extension):
    """Set apart in every docstring what it says of each parameter, of the result and of errors."""

    def on_function(self, *, func: griffe.Function, **kwargs: Any) -> None:
        if func.docstring is not None:
            func.docstring.value = markdown(func.docstring.value, [parameter.name for parameter in func.parameters])

    def on_class(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        init = cls.members.get("__init__")
        if cls.docstring is not None and isinstance(init, griffe.Function):
            cls.docstring.value = markdown(cls.docstring.value, [parameter.name for parameter in init.parameters])
