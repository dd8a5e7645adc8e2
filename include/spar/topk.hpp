// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Includes allreduce.hpp and what a top-k allreduce needs: the selectors, error feedback, `sgd_step`, and the published
// systems, such as ok_topk. A program also includes a transport. Compiles faster than spar.hpp.
#pragma once

#include <spar/allreduce.hpp>
#include <spar/optimizer/error_feedback.hpp>
#include <spar/optimizer/sgd.hpp>
#include <spar/selector/bucket_topk.hpp>
#include <spar/selector/exact_topk.hpp>
#include <spar/selector/gaussian.hpp>
#include <spar/selector/nonzeros.hpp>
#include <spar/selector/threshold_reuse.hpp>
#include <spar/storage/keep_largest.hpp>
#include <spar/system/published.hpp>
