"""The programs, and how their process is set up before torch is loaded."""

import os

# An OpenMP thread that waits spins for milliseconds by default. As soon as another process wants
# the core, each of a step's thousands of parallel loops then waits for its slice of time, and a
# step takes 10 to 40 times as long. This spins for some microseconds only.
os.environ.setdefault("GOMP_SPINCOUNT", "2000")
