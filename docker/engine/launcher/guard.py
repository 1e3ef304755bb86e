"""Ends the engine's process group when the launcher is gone, however it went (also by SIGKILL).

It leads the group that vLLM and all its workers are in, and waits for the end of a pipe of which
only the launcher holds the other end; the kernel closes that whatever happens. A parent-death
signal (prctl) would reach vLLM's first process alone and leave its EngineCore behind. Run as a
file, with -I -S, so that it needs neither the package nor site-packages.
"""

import os
import signal
import sys


def main() -> None:
    """Wait for the launcher's end, then kill the own group, this process included."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while sys.stdin.buffer.read(4096):
        pass
    os.kill(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
