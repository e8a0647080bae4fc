"""Speed and memory, side by side with the libraries people would pick instead.

Contestants have one thread each. The peers and the compiled loops use one, so the linear algebra
libraries are held to one as well, here, before numpy is imported.
"""

import os

for _library in ("BLIS", "MKL", "OMP", "OPENBLAS", "VECLIB_MAXIMUM"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")
