"""`python -m nlpkernel`."""

import sys

from nlpkernel.cli import main

sys.exit(main())
