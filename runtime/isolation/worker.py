"""The program of a worker: set up the sandbox, load a model, run it. Only `spawning` starts it."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

from graphcore.runtime.isolation import sandbox
from graphcore.runtime.isolation.framing import Channel, FrameKind


def main() -> None:
    """Serve the sockets with the descriptors in `sys.argv`, until they are closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)  # SIGXCPU must end the process, whatever handler was inherited
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    ends = [socket.socket(fileno=int(number)) for number in sys.argv[1:3]]
    for end in ends:
        end.set_inheritable(False)
    channel = Channel(ends[0], ends[1])
    try:
        settings = json.loads(channel.receive((FrameKind.SETTINGS,))[1])
        missing = sandbox.set_limits(settings["memory"], settings["parent"])
        time = sandbox.ProcessorTime()
        time.allow(settings["load_seconds"])
        missing += sandbox.restrict_files(settings["readable"], ("/dev/null",))
        missing += sandbox.restrict_calls()
        channel.send(FrameKind.READY, json.dumps(missing).encode())
        # NumPy, onnx and onnxruntime are imported inside the sandbox, and their threads start there too
        from graphcore.runtime.isolation.serving import serve

        serve(channel, settings, time)
    except EOFError:
        pass
    os._exit(0)  # do not wait for threads of the runtime


if __name__ == "__main__":
    main()
