# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Communicators of the processes of mpi4py over Open MPI. mpi4py of PyPI does not find Debian's MPICH."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from processes import ROOT

import spar

pytest.importorskip("mpi4py")
pytestmark = pytest.mark.skipif(not spar.has_ucx, reason="built without UCX")


def ranks():
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    with spar.Communicator.from_mpi4py(world) as comm:
        assert (comm.rank, comm.size) == (world.rank, world.size)
        assert comm.allreduce(np.array([1.0, comm.rank])).tolist() == [comm.size, sum(range(comm.size))]
    half = world.Split(world.rank % 2, -world.rank)
    with spar.Communicator.from_mpi4py(half) as comm:
        assert (comm.rank, comm.size) == (half.rank, half.size)
        assert comm.allreduce(np.ones(1)) == [half.size]
    print(f"rank {world.rank} is done", flush=True)


@pytest.mark.parametrize("n", [2, 3])
def test_mpi4py(n):
    program = [sys.executable, "-c", "import test_mpi4py; test_mpi4py.ranks()"]
    folders = [str(pathlib.Path(spar.__file__).parents[1]), str(pathlib.Path(__file__).parent)]
    done = subprocess.run(
        [ROOT / "scripts/mpirun", "openmpi", str(n), *program],
        env=os.environ | {"PYTHONPATH": ":".join(folders), "SPAR_DEADLINE": "60"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
    )
    if done.returncode == 77:
        pytest.skip("Open MPI is not installed")
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("is done") == n
