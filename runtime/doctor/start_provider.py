"""Starts a session on a provider, in a process of its own, so that a crash ends nothing else.

    python start_provider.py PROVIDER < model

Prints the providers that started. onnxruntime writes the reason why one did not start to stderr.
"""

from __future__ import annotations

import sys


def main() -> int:
    import onnxruntime

    session = onnxruntime.InferenceSession(sys.stdin.buffer.read(), providers=[sys.argv[1]], enable_fallback=0)
    print(*session.get_providers())
    return 0


if __name__ == "__main__":
    sys.exit(main())
