# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The types of values that the extension module has: clang++ 14, whose sanitizers run these tests, lacks float16."""

import numpy as np

import spar


def _has_half():
    (comm,) = spar.Communicator.threads(1)
    try:
        comm.allreduce(np.zeros(1, np.float16))
    except spar.InvalidArgumentError as error:
        assert "compiled without" in str(error)
        return False
    return True


HAS_HALF = _has_half()
TYPES = [np.float32, np.float64, *[np.float16] * HAS_HALF, np.int32, np.int64]
