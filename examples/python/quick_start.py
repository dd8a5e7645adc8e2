# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Averages an array and sums sparse vectors over all ranks: scripts/ranks 4 python examples/python/quick_start.py
import numpy as np

import spar

with spar.Communicator.from_env() as comm:
    gradient = np.full(1000, comm.rank, np.float32)
    comm.allreduce(gradient, "average")
    mine = spar.Sparse(1_000_000, np.array([7, 100 + comm.rank]), np.array([1.0, 2.0]))
    total = comm.allreduce_sparse(mine)
    entries = dict(zip(total.indices.tolist(), total.values.tolist()))
    print(f"rank {comm.rank} of {comm.size}: average {gradient[0]}, sum {entries}")
