"""`python -m memcfg`."""

import sys

from memcfg.cli import main

sys.exit(main())
