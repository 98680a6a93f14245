"""What a forked process does on SIGTERM: it dies, whatever its parent made of that signal."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import os, signal, threading, time
from memcfg.signals import heed

heed(signal.SIGTERM, lambda *_: print("noted", flush=True))
children = []
def fork():
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    children.append(child)
for _ in range(20):  # also from another thread, as pools do; the signal comes at once
    thread = threading.Thread(target=fork)
    thread.start()
    thread.join()
    os.kill(children[-1], signal.SIGTERM)
print([os.WTERMSIG(os.waitpid(child, 0)[1]) for child in children] == [signal.SIGTERM] * 20)
os.kill(os.getpid(), signal.SIGTERM)
"""


def test_a_forked_process_dies_of_sigterm_and_its_parent_does_as_it_said() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=50)
    assert (done.stdout, done.returncode) == ("True\nnoted\n", 0), done.stderr
