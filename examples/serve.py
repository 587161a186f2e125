"""Requests of several threads, served from one running batch: streamed, cancelled, refused, with a shared beginning.

python examples/serve.py
"""

import threading

import numpy as np

import graphcore as gc
from graphcore import models
from graphcore.models import llama

SYSTEM = [int(token) for token in np.random.default_rng(0).integers(3, 1000, 60)]


def client(streams: models.Streams, number: int, texts: dict[int, list[int]]) -> None:
    """Ask for a text and take its tokens as they come."""
    request = streams.submit([*SYSTEM, number], 12, temperature=0.8, seed=number, stop=[2])
    texts[number] = list(request)


if __name__ == "__main__":
    model = gc.InferenceSession().load(llama.build(llama.Config(), cache=128, last_tokens=True))
    texts: dict[int, list[int]] = {}
    with models.Streams(model, slots=4, max_waiting=16) as streams:
        threads = [threading.Thread(target=client, args=(streams, number, texts)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        alone = models.generate(model, [*SYSTEM, 5], 12, temperature=0.8, seed=5, stop=[2])
        print("as alone  ", texts[5] == alone.tolist())

        request = streams.submit(SYSTEM, 60)
        steps = iter(request)
        print("streamed  ", next(steps), next(steps))
        request.cancel()
        try:
            request.result()
        except gc.errors.RunError as error:
            print("cancelled ", error.summary)

        try:
            streams.submit(SYSTEM, 100)
        except gc.errors.FeedError as error:
            print("refused   ", error.summary)

        repeated = streams.submit([5, 6, 7] * 6, 40, lookup=8)
        print("looked up ", len(repeated.result()), "tokens")
        counts = streams.counts
        print(f"{counts.made} tokens in {counts.calls} calls; {counts.reused} tokens of prompts were shared")
