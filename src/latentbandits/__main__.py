import sys

from latentbandits.cli import main

sys.exit(main())
