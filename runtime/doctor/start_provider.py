"""Starts a session on a provider, in a process of its own: what fails there takes nothing with it.

    python start_provider.py PROVIDER < model

Prints the providers that started. What onnxruntime says about one that did not comes on stderr.
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
