"""Generate tokens with a decoder, with random weights or a checkpoint:

python -m graphcore.models.text --random --tokens 64
python -m graphcore.models.text --config config.json --weights model.safetensors --prompt "1 15043 3186"
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from graphcore.errors import GraphcoreError
from graphcore.models import llama
from graphcore.models.generation import stream
from graphcore.runtime import InferenceSession


def main(arguments: Sequence[str] | None = None) -> int:
    """Generate tokens with a decoder and print them."""
    parser = argparse.ArgumentParser(prog="python -m graphcore.models.text", description=main.__doc__)
    parser.add_argument("--random", action="store_true", help="random weights; without --config of a small model")
    parser.add_argument("--config", help="the path of a config.json")
    parser.add_argument("--weights", help="a safetensors file, the index of several, or a GGUF file")
    parser.add_argument("--prompt", default="1", help="token ids, separated by spaces (1)")
    parser.add_argument("--tokens", type=int, default=64, help="number of tokens to generate (64)")
    parser.add_argument("--cache", type=int, help="maximum number of tokens of the text (prompt and --tokens)")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 for the likeliest token (0)")
    parser.add_argument("--top-k", type=int, help="sample from the k likeliest tokens")
    parser.add_argument("--top-p", type=float, help="sample from the fewest tokens with this total probability")
    parser.add_argument("--seed", type=int, default=0, help="the seed of weights and samples (0)")
    options = parser.parse_args(arguments)
    if options.random == (options.weights is not None) or (options.weights and not options.config):
        parser.error("give --random, or --config and --weights")
    try:
        prompt = [int(word) for word in options.prompt.split()]
        config = llama.Config() if options.config is None else llama.Config.read(options.config)
        cache = max(len(prompt) + options.tokens, 1) if options.cache is None else options.cache
        model = InferenceSession().load(llama.build(config, options.weights, cache=cache, seed=options.seed))
        sampling = {"temperature": options.temperature, "top_k": options.top_k, "top_p": options.top_p}
        shows_progress = sys.stderr.isatty() and not sys.stdout.isatty()
        for (token,) in stream(model, prompt, options.tokens, **sampling, seed=options.seed, progress=shows_progress):
            print(token, end=" ", flush=True)
        print()
    except KeyboardInterrupt:
        print()
        return 130
    except GraphcoreError as error:
        print(f"{error.summary}: {error.help}" if error.help else error.summary, file=sys.stderr)
        return 1
    except ValueError:
        print(f"--prompt {options.prompt!r:.80} must be token ids, such as '1 15043'", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
