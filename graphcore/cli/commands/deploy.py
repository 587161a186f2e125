"""`graphcore deploy`: files for Triton, KServe and Docker."""

from __future__ import annotations

import argparse
import os

from graphcore.cli import output
from graphcore.cli.arguments.options import links
from graphcore.errors import GraphError
from graphcore.ir.graph import Graph
from graphcore.runtime.export import Options
from graphcore.runtime.ort.release import runtime
from graphcore.scale.deploy.triton import Settings
from graphcore.scale.deploy.writing import docker_folder, kserve_manifest, triton_repository


def deploy(args: argparse.Namespace) -> int:
    if not (args.triton or args.kserve or args.docker):
        raise GraphError("deploy: no output is chosen", help="give --triton, --kserve or --docker, or several")
    labels = [os.path.splitext(os.path.basename(source))[0] for source in args.sources]
    if args.name and len(args.sources) == 1:
        labels = [args.name]
    if len({*labels}) < len(labels):
        raise GraphError(
            f"deploy: two models have the same name: {', '.join(labels)}", help="give files with different names"
        )
    settings = Settings(args.batch, args.instances, args.provider, round(args.wait * 1000))
    lowering = Options(args.provider, runtime=args.runtime, opset=args.opset)
    graphs: dict[str, Graph] = {}
    for label, source in zip(labels, args.sources, strict=True):
        with output.working(f"loading {source}"):
            graphs[label] = Graph.load(source, **links(args))
    pipeline = args.name or "pipeline" if len(labels) > 1 else None
    files: dict[str, list[str]] = {}
    if args.triton:
        files["triton"] = triton_repository(
            args.triton, graphs, settings, lowering, pipeline=pipeline, version=args.model_version
        )
    if args.docker:
        files["docker"] = docker_folder(args.docker, graphs, settings, lowering, runtime().version, args.wheel)
    if args.kserve:
        files["kserve"] = kserve_manifest(
            args.kserve, pipeline or labels[0], settings, image=args.image, storage=args.storage
        )
    if args.json:
        output.document({"models": labels, "pipeline": pipeline, "files": files})
        return 0
    for kind, paths in files.items():
        for path in paths:
            output.line(f"{kind}: {path}")
    return 0
