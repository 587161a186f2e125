"""`graphcore astype`: a model that computes in another dtype of floats."""

from __future__ import annotations

import argparse

from graphcore.cli.rewriting import rewrite


def astype(args: argparse.Namespace) -> int:
    return rewrite(
        args, lambda graph: graph.astype(args.dtype, source=args.dtypes, keep=args.keep, keep_io=not args.io)
    )
