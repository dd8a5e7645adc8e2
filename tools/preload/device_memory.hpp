// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Memory that the processor cannot read: programs with CUDA may give MPI that of a device.
#pragma once

#include <cstddef>

namespace preload {

/// Whether the process has loaded CUDA's driver.
bool has_devices() noexcept;

/// Whether the process has loaded what programs reach other makers' devices by, whose memory nothing here recognises.
bool has_unknown_devices() noexcept;

/// Whether the MPI library reads such memory, so that a program that loads it later may pass it on.
bool may_get_unknown_devices() noexcept;

/// Whether the process has loaded CUDA's driver and that says that the memory is a device's.
bool is_device_memory(const void* address) noexcept;

/// Between memory of any kind; has ended when this returns. Throws `std::runtime_error` where the driver fails.
void copy(void* to, const void* from, std::size_t bytes);

} // namespace preload
