"""Model packages of onnxruntime: folders with variants of models, of which a session's providers choose one."""

from __future__ import annotations

import json
import os
from typing import TypeVar

import onnxruntime

from graphcore.errors import ModelError, RunError
from graphcore.runtime.ort.options import SessionStarter
from graphcore.support.escaping import suggestion

_Model = TypeVar("_Model")

_SEEN_FROM = "1.32.0"
"""The oldest release in which the interface was seen."""


def chosen_model(model: _Model, component: str | None, starter: SessionStarter) -> _Model | str:
    """Return a model, or the path of the one that onnxruntime chooses from a package.

    component: the name of a part of the package; None if it has one. Raises `ModelError` and `RunError`.
    """
    if not isinstance(model, (str, os.PathLike)) or not os.path.isfile(
        os.path.join(os.fsdecode(model), "manifest.json")
    ):
        if component is not None:
            raise ModelError("load: component names a part of a model package", help="give the folder of a package")
        return model
    path = os.fsdecode(model)
    if not hasattr(onnxruntime, "ModelPackageContext"):
        raise RunError(
            f"load: {path}: onnxruntime {onnxruntime.__version__} reads no model packages",
            help=f"install onnxruntime {_SEEN_FROM} or newer, or give the path of a model in the package",
        )
    options = starter.options({})
    if starter.selection is not None:
        starter.selection.configure(options, starter.provider_options)
    else:
        for provider in starter.providers:
            options.add_provider(provider, dict(starter.provider_options.get(provider, {})))
    try:
        package = onnxruntime.ModelPackageContext(path)
        names = sorted(package.get_component_names())
        name = names[0] if component is None and len(names) == 1 else component
        if name not in names:
            listed = ", ".join(map(repr, names)) or "none"
            raise ModelError(
                f"load: {path}: the model package has the components {listed}, not {name!r:.80}",
                help=f"{suggestion(name, names) if isinstance(name, str) else ''}give one of them as component",
            )
        chosen = package.select_component(name, onnxruntime.ModelPackageOptions(options))
        variant = chosen.get_selected_variant_name()
        (part,) = (p for p in onnxruntime.ModelPackage.open(path).get_info()["components"] if p["name"] == name)
        (info,) = (v["executor_info"]["ort"] for v in part["variants"] if v["name"] == variant)
        file = json.loads(info)["model_file"]
        return str(package.resolve_string_ref(file, chosen.get_selected_variant_folder_path(), True))
    except ModelError:
        raise
    except Exception as error:  # onnxruntime raises several kinds of its own
        raise ModelError(
            f"load: {path}: onnxruntime cannot choose a model of this package: {str(error).strip() or error!r:.400}",
            help=f"the session has {', '.join(starter.providers)}; give other providers, or the path of a model in it",
        ) from error
