"""``python -m cramerl`` is the ``cramerl`` command."""

import sys

from cramerl.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
