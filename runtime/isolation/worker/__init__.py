"""The program of a worker process: `python -m graphcore.runtime.isolation.worker`, started by `spawning`."""
