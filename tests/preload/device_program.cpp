// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// device_program DRIVER early|late|pool|failing|other|other_late
//
// A program whose rank 0 passes device memory to MPI_Allreduce. Rank 0 loads the driver before its first call (`early`)
// or after it (`late`). An MPI library that supports devices can read device memory, so the program makes the memory
// readable if MPI is to get it. `pool`: late, the memory belongs to no context, and the context of another device is
// current. `failing`: late, and then every copy fails. `other`: early, the driver of a device that the library does not
// recognise; `other_late`: late, where the MPI library reports support for such devices.
#include <dlfcn.h>
#include <mpi.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr int count = 100'000;
constexpr std::size_t bytes = count * sizeof(float);
int failures = 0;
bool knows_other_devices = false;

void expect(bool condition, const char* what) {
  if (condition) return;
  ++failures;
  std::fprintf(stderr, "FAILED: %s\n", what);
}

template <class Function>
Function find(void* driver, const char* name) {
  const auto found = reinterpret_cast<Function>(dlsym(driver, name));
  if (found == nullptr) MPI_Abort(MPI_COMM_WORLD, 1);
  return found;
}

auto copy_of(void* driver) {
  return find<int (*)(unsigned long long, unsigned long long, std::size_t)>(driver, "cuMemcpy");
}

/// A vector in device memory; the driver's context is current on this thread only during a copy.
class device_vector {
 public:
  device_vector(void* driver, bool readable) : driver_(driver) {
    const auto allocate = find<int (*)(unsigned long long*, std::size_t)>(driver, "cuMemAlloc_v2");
    expect(allocate(&address_, bytes) == 0, "device memory");
    if (readable) expect(mprotect(get(), bytes, PROT_READ | PROT_WRITE) == 0, "mprotect");
  }
  [[nodiscard]] float* get() const { return reinterpret_cast<float*>(address_); }
  void write(const std::vector<float>& x) { copy(address_, reinterpret_cast<unsigned long long>(x.data())); }
  [[nodiscard]] std::vector<float> read() {
    std::vector<float> x(count);
    copy(reinterpret_cast<unsigned long long>(x.data()), address_);
    return x;
  }

 private:
  void copy(unsigned long long to, unsigned long long from) {
    void* context = nullptr;
    find<int (*)(void**, int)>(driver_, "cuDevicePrimaryCtxRetain")(&context, 3);
    find<int (*)(void*)>(driver_, "cuCtxPushCurrent_v2")(context);
    const int copied = copy_of(driver_)(to, from, bytes);
    expect(copied == 0 && find<int (*)(void*)>(driver_, "cuStreamSynchronize")(nullptr) == 0, "a copy");
    find<int (*)(void**)>(driver_, "cuCtxPopCurrent_v2")(&context);
    find<int (*)(int)>(driver_, "cuDevicePrimaryCtxRelease_v2")(3);
  }

  void* driver_;
  unsigned long long address_ = 0;
};

} // namespace

extern "C" int MPIX_Query_rocm_support() { return knows_other_devices ? 1 : 0; }

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const std::string when = argc == 3 ? argv[2] : "";
  const bool other = when == "other" || when == "other_late";
  const bool early = when == "other" || when == "early";
  knows_other_devices = when == "other_late";
  const auto load = [&] { return rank == 0 && argc == 3 ? dlopen(argv[1], RTLD_NOW) : nullptr; };
  void* driver = early ? load() : nullptr;

  const std::vector<float> mine(count, static_cast<float>(rank + 1));
  const std::vector<float> sum(count, static_cast<float>(ranks * (ranks + 1) / 2));
  std::vector<float> result(count);
  const auto on_host = [&] {
    std::memset(result.data(), 0, bytes);
    MPI_Allreduce(mine.data(), result.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    expect(result == sum, "the sum in the processor's memory");
  };
  on_host();

  if (when == "other_late") {
    expect(rank != 0 || load() != nullptr, "the driver of the other device");
    for (int i = 0; i < 4; ++i) on_host();
  }
  if (other || dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) != driver) {
    if (!other) std::printf("skipped: another driver is there\n");
    MPI_Finalize();
    return failures == 0 ? 0 : 1;
  }
  if (!early) driver = load();
  if (rank == 0 && driver == nullptr) {
    std::fprintf(stderr, "no driver: %s\n", dlerror());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  if (driver == nullptr) { // a rank without a device
    for (int i = 0; i < 4; ++i) on_host();
  } else {
    if (when == "pool") {
      find<void (*)()>(driver, "use_pool")();
      find<int (*)(void*)>(driver, "cuCtxPushCurrent_v2")(find<void* (*)()>(driver, "context_of_another_device")());
    }
    device_vector send(driver, early), receive(driver, early);
    send.write(mine);
    MPI_Allreduce(send.get(), receive.get(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    expect(receive.read() == sum && send.read() == mine, "from device to device");
    std::memset(result.data(), 0, bytes);
    MPI_Allreduce(send.get(), result.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    expect(result == sum, "from device to host");
    receive.write(mine);
    MPI_Allreduce(mine.data(), receive.get(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    expect(receive.read() == sum, "from host to device");
    MPI_Allreduce(MPI_IN_PLACE, send.get(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    expect(send.read() == sum, "in place");
    expect(copy_of(driver)(0, 0, 0) != 0, "a context has been left behind");
    expect(find<int (*)()>(driver, "retained_contexts")() == 0, "a retained context has been left behind");
  }
  if (when == "failing") {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Barrier(MPI_COMM_WORLD); // a rank that fails also ends earlier calls that other ranks have not completed
    float* x = result.data();
    if (driver != nullptr) {
      x = device_vector(driver, false).get();
      find<void (*)()>(driver, "fail_copies")();
    }
    for (int i = 0; i < 2; ++i) {
      const int code = MPI_Allreduce(MPI_IN_PLACE, x, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      expect(code != MPI_SUCCESS, "a copy that fails ends on every rank");
    }
  }
  MPI_Finalize();
  return failures == 0 ? 0 : 1;
}
