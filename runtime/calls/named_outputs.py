"""The arguments of `model.run`, which are those of `onnxruntime.InferenceSession.run`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from graphcore.errors import FeedError
from graphcore.support.suggestions import suggestion


def requested(
    model: str,
    known: Collection[str],
    output_names: Sequence[str] | None,
    input_feed: object,
    run_options: object,
    session: str,
) -> Sequence[str]:
    """Return the names of the outputs that a run is to give, all of `known` for None.

    model, session: names for errors, of the model and of the class whose options are meant. Raises `FeedError` for
    names that are no outputs, a feed that is no mapping by names, and run_options that are not None.
    """
    names = [*known] if output_names is None else output_names
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise FeedError(
            f"run: {model}: {names!r:.80} is no list of outputs", help='give names: model.run(["y"], {"x": x})'
        )
    for name in names:
        if name not in known:
            raise FeedError(
                f"run: {model}: there is no output {name!r:.80}",
                help=f"{suggestion(name, known)}the outputs: {', '.join(known)}",
            )
    if not isinstance(input_feed, Mapping) or not all(isinstance(name, str) for name in input_feed):
        raise FeedError(
            f"run: {model}: the feed is {input_feed!r:.80}", help='give a dict by name: model.run(None, {"x": x})'
        )
    if run_options is not None:
        raise FeedError(f"run: {model}: a call takes no run_options", help=f"give options to {session}")
    return names
