# With defaults, so that `Function` without parameters is a valid type. All type checkers have typing_extensions.

from typing import Any

from typing_extensions import ParamSpec, TypeVar

P = ParamSpec("P", default=...)
R = TypeVar("R", default=Any)
Arrays = TypeVar("Arrays", default=Any)
