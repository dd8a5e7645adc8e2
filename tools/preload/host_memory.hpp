// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Whether an address is one that the processor can read: programs with CUDA may give MPI device memory.
#pragma once

namespace preload {

/// Whether the process has loaded CUDA's driver.
bool has_devices() noexcept;

/// True unless the process has loaded CUDA's driver and that says that the memory is a device's.
bool is_host_memory(const void* address) noexcept;

} // namespace preload
