"""Trains in a process that it forks, as a script does that gives its memory back in between."""

import multiprocessing
import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    loop = str(Path(__file__).with_name("loop.py"))
    sys.argv = [loop, *sys.argv[1:]]
    fork = multiprocessing.get_context("fork")
    process = fork.Process(target=runpy.run_path, args=(loop,))
    process.start()
    process.join()
    sys.exit(process.exitcode)
