"""The program of a worker: the sandbox first, then a model, then its runs. Started by `spawning`, never by hand."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

from graphcore.runtime.isolation import sandbox
from graphcore.runtime.isolation.framing import Channel, Kind


def main() -> None:
    """Serve the sockets whose numbers are the arguments, until they are closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)  # the end of the processor time is the end, whatever was inherited
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    ends = [socket.socket(fileno=int(number)) for number in sys.argv[1:3]]
    for end in ends:
        end.set_inheritable(False)
    channel = Channel(ends[0], ends[1])
    try:
        settings = json.loads(channel.receive((Kind.SETTINGS,))[1])
        missing = sandbox.limit(settings["memory"], settings["parent"])
        time = sandbox.ProcessorTime()
        time.allow(settings["load_seconds"])
        missing += sandbox.restrict(settings["readable"], ("/dev/null",))
        missing += sandbox.refuse()
        channel.send(Kind.READY, json.dumps(missing).encode())
        # NumPy, onnx and onnxruntime are imported inside the sandbox, and their threads start there too
        from graphcore.runtime.isolation.serving import serve

        serve(channel, settings, time)
    except EOFError:
        pass
    os._exit(0)  # threads of the runtime are not waited for


if __name__ == "__main__":
    main()
