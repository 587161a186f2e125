"""Creating onnxruntime sessions with the providers and options that a user chose."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnxruntime

from graphcore.runtime.memory import gathered, gathered_later, keep
from graphcore.runtime.ort.options import EXACT_PRODUCTS, session_options
from graphcore.runtime.ort.providers import EXACT

SLOWER = ("SkipLayerNormFusion", "BiasGeluFusion")
"""Optimisers that are left out. Measured: the CPU kernel of the first is five times slower than what it replaces, the
second gains nothing."""


@dataclass(frozen=True, slots=True)
class Starter:
    """The part that all sessions of an `InferenceSession` share.

    providers: by preference. provider_options: by provider. attributes: of SessionOptions. config: entries of the
    configuration. huge_pages: None where each session says whether it gathers memory in large pages.
    """

    providers: tuple[str, ...]
    provider_options: Mapping[str, Mapping[str, str]]
    attributes: Mapping[str, Any]
    config: Mapping[str, str]
    huge_pages: bool | None
    libraries: tuple[str, ...] = ()

    def options(self, more: Mapping[str, Any]) -> onnxruntime.SessionOptions:
        """Return new options of a session. more: attributes and entries, over the user's attributes."""
        made = session_options({**self.attributes, **more, **self.config})
        for path in self.libraries:
            made.register_custom_ops_library(path)
        return made

    def entries(self) -> list[tuple[str, Any]]:
        """Return all attributes and entries that sessions start with, in order: a part of a cache key."""
        libraries = {f"library {path}": os.stat(path).st_mtime_ns for path in self.libraries}
        return sorted({**EXACT_PRODUCTS, **self.attributes, **self.config, **libraries}.items())

    def create(
        self,
        model: bytes | str,
        options: onnxruntime.SessionOptions,
        disabled: Sequence[str] = SLOWER,
        defaults: Mapping[str, Mapping[str, str]] = EXACT,
        providers: Sequence[str] | None = None,
        runs_often: bool = False,
    ) -> onnxruntime.InferenceSession:
        """Return a new session. Raises what onnxruntime raises.

        disabled: optimisers to leave out. defaults: options by provider where the user gives none. providers: in place
        of all. runs_often: whether large pages pay, from some number of calls on.
        """
        providers = providers or self.providers

        def made() -> onnxruntime.InferenceSession:
            # The fallback would print on stdout, drop the options and run on another provider than was asked for.
            return onnxruntime.InferenceSession(
                model,
                options,
                providers=list(providers),
                provider_options=[{**defaults.get(p, {}), **self.provider_options.get(p, {})} for p in providers],
                disabled_optimizers=list(disabled),
                enable_fallback=0,
            )

        if self.huge_pages is not None:
            with gathered(self.huge_pages):
                return made()
        with gathered_later(runs_often) as later:
            session = made()
        if later is not None:
            keep(session, later)
        return session
