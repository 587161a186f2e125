"""Folders of the Hugging Face Hub: the files of a model, and what `models.load` makes of them by `model_type`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from tokenizers import Tokenizer, normalizers

from graphcore.arrays.casting import Array
from graphcore.checkpoints import Tensors, load_tensors
from graphcore.errors import ModelError
from graphcore.models import _config, decoder, encoder
from graphcore.models._config import require
from graphcore.models.encoder import TextEncoder
from graphcore.models.families import FAMILIES, Config, unknown_type
from graphcore.models.text.chat import ChatTemplate
from graphcore.models.text.decoder import TextDecoder
from graphcore.runtime import InferenceSession, Model, quantize

WEIGHTS = ("model.safetensors.index.json", "model.safetensors")


@dataclass(frozen=True, slots=True)
class Options:
    """The options of `models.load`."""

    cache: int | None
    session: InferenceSession | None
    dtype: str | None
    slots: int
    max_waiting: int
    draft: TextDecoder | None
    adapters: Mapping[str, str | os.PathLike[str]]
    ignore: Collection[str]
    cache_scales: Mapping[str, Array] | None

    def loaded(self, graph: Any, session: InferenceSession | None = None) -> Model:
        """Return a model, quantised by `dtype` if there is one. session: the default."""
        graph = graph if self.dtype is None else quantize(graph, self.dtype).graph
        return (self.session or session or InferenceSession()).load(graph)


@dataclass(frozen=True, slots=True)
class Folder:
    """The files of a model. path: the folder. config: the fields of its `config.json`."""

    path: str
    config: Mapping[str, Any]

    @property
    def name(self) -> str:
        return os.path.basename(os.path.abspath(self.path))

    def file(self, *names: str) -> str:
        """Return the path of the first file that exists. Raises `ModelError` if none does."""
        for name in names:
            if self.has(name):
                return os.path.join(self.path, name)
        raise ModelError(
            f"load: {self.path!r:.256} has no {' or '.join(names)}",
            help="give the folder of a model with all its files",
        )

    def has(self, name: str) -> bool:
        return os.path.exists(os.path.join(self.path, name))

    def fields(self, name: str) -> dict[str, Any]:
        """Return the fields of a JSON file; none if it does not exist."""
        return _config.content_of(self.file(name)) if self.has(name) else {}

    def weights(self) -> Tensors[Array]:
        """Return the weights by name. In a cache of the Hub, the files are links into a folder beside."""
        path = self.file(*WEIGHTS)
        if os.path.islink(path):
            return load_tensors(path, external_data="links", external_data_root=os.path.join(self.path, "..", ".."))
        return load_tensors(path)

    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer, without truncation and padding."""
        path = self.file("tokenizer.json")
        try:
            tokenizer = Tokenizer.from_file(path)
        except Exception as error:  # the package raises no other class
            raise ModelError(f"load: {path} is not a tokenizer: {error}", help="give a tokenizer.json") from None
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer

    def special_tokens(self) -> dict[str, str]:
        """Return the special tokens by name, such as `bos_token`."""
        values = {n: v for n, v in self.fields("tokenizer_config.json").items() if n.endswith("_token")}
        texts = {name: value.get("content") if isinstance(value, dict) else value for name, value in values.items()}
        return {name: text for name, text in texts.items() if isinstance(text, str)}

    def chat_template(self) -> ChatTemplate | None:
        source = self.fields("tokenizer_config.json").get("chat_template")
        if self.has("chat_template.jinja"):
            with open(self.file("chat_template.jinja"), encoding="utf-8") as file:
                source = file.read(_config.MAX_FILE_BYTES)
        if isinstance(source, list):  # several templates by name
            by_name = {each.get("name"): each.get("template") for each in source if isinstance(each, dict)}
            source = by_name.get("default")
        return ChatTemplate(self.name, source, self.special_tokens()) if isinstance(source, str) else None


def _decoder(folder: Folder, options: Options) -> TextDecoder:
    tokenizer = folder.tokenizer()
    generation = folder.fields("generation_config.json")
    ends = generation.get("eos_token_id", folder.config.get("eos_token_id"))
    end = tokenizer.token_to_id(folder.special_tokens().get("eos_token", ""))
    eos = [*(ends if isinstance(ends, list) else [ends]), end]
    config = Config.read(folder.config, options.ignore)
    graph = decoder.build(
        config, folder.weights(), cache=options.cache, last_tokens=True, adapters=_targets(options.adapters),
        cache_scales=options.cache_scales,
    )  # fmt: skip
    result = TextDecoder(
        folder.name, options.loaded(graph), tokenizer,
        template=folder.chat_template(),
        eos=[token for token in eos if type(token) is int],
        sampling={name: generation[name] for name in ("temperature", "top_k", "top_p") if generation.get(name)},
        slots=options.slots, max_waiting=options.max_waiting, draft=options.draft,
    )  # fmt: skip
    result.adapters |= {name: result.model.adapter(path) for name, path in options.adapters.items()}
    return result


def _targets(adapters: Mapping[str, str | os.PathLike[str]]) -> set[str]:
    """Return the ends of names of the layers that adapters change. Raises `ModelError` for a regular expression."""
    result: set[str] = set()
    for path in adapters.values():
        targets = _config.content_of(os.path.join(path, "adapter_config.json")).get("target_modules")
        if not isinstance(targets, list) or not all(isinstance(each, str) for each in targets):
            raise ModelError(
                f"load: the target_modules of {os.fsdecode(path)!r:.200} are {targets!r:.80}, not a list of names",
                help='list the layers in its adapter_config.json: "target_modules": ["q_proj", "v_proj"]',
            )
        result.update(targets)
    return result


def _encoder(folder: Folder, options: Options) -> TextEncoder:
    """Return an encoder of texts, as the files of sentence-transformers say, by default with the mean over tokens."""
    is_plain = not options.adapters and options.draft is None and options.cache_scales is None
    require(is_plain, f"{folder.name} is an encoder, without adapters and a draft, or cache_scales", "omit them")
    config = encoder.Config.read(folder.config, options.ignore)
    modules = _config.read_json(folder.file("modules.json")) if folder.has("modules.json") else []
    require(isinstance(modules, list) and all(isinstance(m, dict) for m in modules), "modules.json is not a list")
    paths = {str(m.get("type")).rpartition(".")[2]: os.path.basename(str(m.get("path"))) for m in modules}
    others = sorted(paths.keys() - {"Transformer", "Pooling", "Normalize"})
    require(not others, f"modules.json has {', '.join(others)}; supported is Transformer, Pooling and Normalize")
    pooling = folder.fields(os.path.join(paths.get("Pooling", "1_Pooling"), "config.json"))
    modes = [name.removeprefix("pooling_mode_") for name, value in pooling.items() if value is True and "mode" in name]
    modes = [re.sub("_tokens?$", "", mode) for mode in modes] or ["mean"]
    texts = folder.fields("config_sentence_transformers.json")
    prompts = {name: text for name, text in (texts.get("prompts") or {}).items() if isinstance(text, str)}
    require(pooling.get("include_prompt", True) is True or not prompts, "include_prompt is False; supported is True")
    arrays = {name: array.astype(np.float32, copy=False) for name, array in folder.weights().items()}
    graph = encoder.build(config, arrays, pooling=pooling.get("pooling_mode", "+".join(modes)), packed=True)
    sentence, tokenizer = folder.fields("sentence_bert_config.json"), folder.tokenizer()
    if sentence.get("do_lower_case"):
        parts = [normalizers.Lowercase(), *([tokenizer.normalizer] if tokenizer.normalizer else [])]
        tokenizer.normalizer = normalizers.Sequence(parts)
    limits = (
        options.cache,
        sentence.get("max_seq_length"),
        folder.fields("tokenizer_config.json").get("model_max_length"),
    )
    limit = next((limit for limit in limits if type(limit) is int and limit > 0), config.max_tokens)
    tokenizer.enable_truncation(min(limit, config.max_tokens))
    # Spinning threads would take processors from the tokenizer.
    session = InferenceSession(config={"session.intra_op.allow_spinning": False})
    default = texts.get("default_prompt_name")
    return TextEncoder(folder.name, tokenizer, options.loaded(graph, session), "Normalize" in paths, prompts, default)


LOADERS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(FAMILIES, _decoder),
    **dict.fromkeys(encoder.FAMILIES, _encoder),
}
"""What makes a model of a Folder and the options of `models.load`, by `model_type`."""


def load(path: str, options: Options) -> Any:
    """Return the model of a folder. Raises `ModelError` for an unknown `model_type`."""
    folder = Folder(path, _config.content_of(os.path.join(path, "config.json")))
    kind = folder.config.get("model_type")
    loader = LOADERS.get(kind) if isinstance(kind, str) else None
    if loader is None:
        raise unknown_type("load", kind, LOADERS)
    return loader(folder, options)
