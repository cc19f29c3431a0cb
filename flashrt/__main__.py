"""`python -m flashrt` is `flashrt`."""

import sys

from flashrt.cli import main

sys.exit(main())
