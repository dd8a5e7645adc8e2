# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PageRank on SciPy's sparse matrices: scripts/ranks 4 python examples/python/pagerank.py [--pages N]

The pages are divided among the ranks. In each step, a rank computes what its pages give to others as a sparse vector,
and gets the sum for its own pages by reduce_scatter_sparse. Compares the result with that of one rank."""

import argparse

import numpy as np
import scipy.sparse as sp

import spar

DAMPING, STEPS, LINKS = 0.85, 30, 8


def links_from(pages, n):
    """The links from a range of pages as a matrix (target, page - begin) whose columns have the sum 1."""
    begin, end = pages
    columns = np.repeat(np.arange(end - begin), LINKS)
    targets = np.concatenate(
        [np.floor(n * np.random.default_rng(page).random(LINKS) ** 3) for page in range(begin, end)] or [[]]
    )
    return sp.csr_array((np.full(len(columns), 1 / LINKS), (targets.astype(np.int64), columns)), (n, end - begin))


def pagerank(comm, n):
    pages = spar.block(n, comm.size, comm.rank)
    links, ranks = links_from(pages, n), np.full(pages[1] - pages[0], 1 / n)
    for _ in range(STEPS):
        given = sp.coo_array(links @ ranks)
        own = comm.reduce_scatter_sparse(given)
        ranks[:] = (1 - DAMPING) / n
        ranks[own.coords[0] - pages[0]] += DAMPING * own.data
    everywhere = np.zeros(n)
    everywhere[slice(*pages)] = ranks
    return comm.allgather(everywhere)


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--pages", type=int, default=20_000)
n = parser.parse_args().pages
with spar.Communicator.from_env() as comm:
    ranks = pagerank(comm, n)
    if comm.rank == 0:
        (alone,) = spar.run_threads(1, lambda one: pagerank(one, n))
        print(f"{n} pages on {comm.size} ranks: page {ranks.argmax()} has {ranks.max():.4f} of {ranks.sum():.4f}")
        print(f"largest difference from one rank: {abs(ranks - alone).max():.1e}")
        assert np.allclose(ranks, alone)
