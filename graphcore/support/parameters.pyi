# With defaults, so that `Function` alone is a type as well. Every type checker brings typing_extensions.

from typing import Any

from typing_extensions import ParamSpec, TypeVar

P = ParamSpec("P", default=...)
R = TypeVar("R", default=Any)
Arrays = TypeVar("Arrays", default=Any)
