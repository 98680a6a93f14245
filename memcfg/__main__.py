"""`python -m memcfg`."""

import os
import sys

from memcfg.cli import main
from memcfg.commands.ranks import launched

code = main()
if code and launched():
    # The others wait for this process to be gone, and taking down torch can take long, or hang where one is lost.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
sys.exit(code)
