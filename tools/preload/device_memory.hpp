// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Detects and copies device memory, which the processor cannot read and which CUDA programs may pass to MPI.
#pragma once

#include <cstddef>

namespace preload {

/// Whether the process has loaded CUDA's driver.
bool has_devices() noexcept;

/// Whether the process has loaded a library for devices of other vendors (HIP, Level Zero), whose memory this library
/// cannot recognise.
bool has_unknown_devices() noexcept;

/// Whether the MPI library can read memory of devices of other vendors: the program may then load a device library
/// later and pass device memory to MPI.
bool may_get_unknown_devices() noexcept;

/// Whether the process has loaded CUDA's driver and the driver reports that the address is device memory.
bool is_device_memory(const void* address) noexcept;

/// Copies between host and device memory in any combination; the copy is complete on return. Throws
/// `std::runtime_error` if the driver fails.
void copy(void* to, const void* from, std::size_t bytes);

} // namespace preload
