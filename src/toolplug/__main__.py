"""`python -m toolplug`: the command `toolplug`."""

import sys

from toolplug.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
