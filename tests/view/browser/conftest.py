"""The browser that all tests of this folder share, and graphs to look at."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import Opened, missing, opened, started

Show = Callable[..., AbstractContextManager[Opened]]


# Not for the session: while Playwright runs, its event loop does too, and asyncio of other tests could not.
@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    why = missing()
    if why is not None:
        pytest.skip(why)
    with started() as result:
        yield result


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Show:
    """Return a function that opens the page of `page_data(...)`."""

    return functools.partial(opened, browser, tmp_path)
