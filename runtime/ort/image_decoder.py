"""ONNX's ImageDecoder as a custom op that Pillow computes. Needs the extra `images`."""

from __future__ import annotations

import functools
import io
from typing import Any

import numpy as np

from graphcore import custom_ops
from graphcore.arrays.casting import Array
from graphcore.errors import MissingExtraError
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

_FORMATS = ("BMP", "DIB", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
"""The formats of ONNX, by Pillow's names. For others, such as EPS, Pillow starts programs."""

_MODES = {"RGB": "RGB", "BGR": "RGB", "Grayscale": "L"}


@functools.cache
def image_decoder() -> custom_ops.CustomOp[..., Any]:
    """Return the operator. Raises `MissingExtraError` if Pillow is not installed."""
    try:
        import PIL.Image  # noqa: F401  # the extra `images`, which few models need
    except ImportError as error:
        raise MissingExtraError(
            "ImageDecoder: decoding images needs the packages Pillow and onnxruntime-extensions",
            help="pip install -e '.[images]', or decode the image before the model and feed its pixels",
        ) from error
    return custom_ops.CustomOp("ai.onnx::ImageDecoder", _type, "none", {}, None, decode, None, None)


def _type(encoded_stream: TensorType, *, pixel_format: str = "RGB") -> TensorType:
    return TensorType(DType.uint8, [Dim.dynamic(), Dim.dynamic(), 1 if pixel_format == "Grayscale" else 3])


def decode(encoded_stream: Array, *, pixel_format: str = "RGB") -> Array:
    """Return the pixels of an image as uint8 [height, width, channels], without elements if it cannot be read.

    Raises `ValueError` for an unknown `pixel_format`, and Pillow's `DecompressionBombError`.
    """
    from PIL import Image  # the extra `images`, as above

    if pixel_format not in _MODES:
        raise ValueError(f"pixel_format must be one of {', '.join(_MODES)}, got {pixel_format!r}")
    channels = 1 if pixel_format == "Grayscale" else 3
    try:
        with Image.open(io.BytesIO(encoded_stream.tobytes()), formats=_FORMATS) as image:
            pixels = np.asarray(image.convert(_MODES[pixel_format])).reshape(image.height, image.width, channels)
    except (OSError, SyntaxError, ValueError):  # Pillow raises these for bytes that are not a complete image
        return np.zeros((0, 0, channels), np.uint8)
    return pixels[:, :, ::-1] if pixel_format == "BGR" else pixels
