// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Entry points that a program calls instead of its MPI library's, by the profiling interface of MPI (MPI 4.0, chapter
// 15).
#include "interface.hpp"

#include "communicator.hpp"
#include "device_memory.hpp"
#include "settings.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

namespace preload {

namespace {

/// Why a call is passed on to the MPI library.
enum class reason : std::uint8_t {
  short_vector,    ///< fewer bytes than the limit
  type,            ///< no arithmetic type that MPI predefines
  operation,       ///< of the user, or not defined for the type
  communicator,    ///< one rank, an intercommunicator, ranks of another MPI_COMM_WORLD, or too many communicators
  device_memory,   ///< values may be in memory of a device
  arguments,       ///< no values, or invalid arguments, which the MPI library reports
  invalid_setting, ///< the settings are invalid, so every call is passed on
  count
};
constexpr auto reasons = static_cast<std::size_t>(reason::count);
constexpr std::array<const char*, reasons> reason_names{"short_vector",  "type",      "operation",      "communicator",
                                                        "device_memory", "arguments", "invalid_setting"};

/// Counts over all communicators of the process.
struct totals {
  std::atomic<std::uint64_t> calls = 0;
  std::array<std::atomic<std::uint64_t>, reasons> calls_passed{};
  std::atomic<std::int64_t> bytes_sent = 0;
  std::atomic<std::int64_t> bytes_saved = 0; // negative if encodings are longer than plain values
  std::atomic<double> seconds = 0;
};

/// The state of the library in this process.
struct process {
  settings chosen;
  int attribute = MPI_KEYVAL_INVALID;
  bool one_host = false; // whether all ranks share memory
  totals sum;
  std::mutex turn; // guards `all`
  // The communicators taken over. Each communicator of the program has an attribute that points to its entry.
  std::vector<std::unique_ptr<communicator>> all;
};
process& here = *new process; // never destroyed: a program may finalise MPI after the destruction of static objects

/// Each communicator takes four context ids of the MPI library, which has about two thousand.
constexpr std::size_t most_communicators = 64;
/// The attribute of a communicator that is not taken over points to one of these reasons.
reason unsuitable = reason::communicator;
reason beside_devices = reason::device_memory;
bool is_refusal(const void* attribute) noexcept { return attribute == &unsuitable || attribute == &beside_devices; }

/// Whether this thread is inside this library: calls from inside go to the MPI library directly.
thread_local bool inside = false;
class guard {
 public:
  guard() noexcept : before_(inside) { inside = true; }
  guard(const guard&) = delete;
  ~guard() { inside = before_; }

 private:
  bool before_;
};

int forget(MPI_Comm, int, void* attribute, void*) {
  if (is_refusal(attribute)) return MPI_SUCCESS;
  std::unique_ptr<communicator> gone; // destroyed after the mutex is unlocked, because the destructor calls MPI
  {
    const std::lock_guard mine(here.turn);
    const auto found =
        std::find_if(here.all.begin(), here.all.end(), [&](const auto& c) { return c.get() == attribute; });
    if (found == here.all.end()) return MPI_SUCCESS;
    gone = std::move(*found);
    here.all.erase(found);
  }
  const guard own;
  gone.reset();
  return MPI_SUCCESS;
}

/// Makes MPI return errors on a communicator for the lifetime of this object, instead of calling the program's error
/// handler.
class quiet_errors {
 public:
  explicit quiet_errors(MPI_Comm comm) : comm_(comm) {
    PMPI_Comm_get_errhandler(comm_, &before_);
    PMPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  }
  quiet_errors(const quiet_errors&) = delete;
  ~quiet_errors() {
    PMPI_Comm_set_errhandler(comm_, before_);
    PMPI_Errhandler_free(&before_);
  }

 private:
  MPI_Comm comm_;
  MPI_Errhandler before_ = MPI_ERRHANDLER_NULL;
};

/// Whether all ranks belong to this MPI_COMM_WORLD: ranks of another one may have other settings, or run without this
/// library.
bool within_world(MPI_Comm comm, int size) {
  MPI_Group group = MPI_GROUP_NULL, world = MPI_GROUP_NULL;
  PMPI_Comm_group(comm, &group);
  PMPI_Comm_group(MPI_COMM_WORLD, &world);
  std::vector<int> here_numbers(static_cast<std::size_t>(size)), there(here_numbers.size());
  std::iota(here_numbers.begin(), here_numbers.end(), 0);
  PMPI_Group_translate_ranks(group, size, here_numbers.data(), world, there.data());
  PMPI_Group_free(&group);
  PMPI_Group_free(&world);
  return std::find(there.begin(), there.end(), MPI_UNDEFINED) == there.end();
}

/// The minimum of all ranks' numbers; 0 if MPI fails.
int agree(int mine, MPI_Comm comm) {
  int all = 0;
  return PMPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, comm) == MPI_SUCCESS ? all : 0;
}

/// Takes over a communicator or refuses it, and returns its new attribute; all ranks decide alike. Collective.
void* make(MPI_Comm comm) {
  const auto refuse = [&](reason& why) {
    PMPI_Comm_set_attr(comm, here.attribute, &why); // also frees an attached communicator, through `forget`
    return &why;
  };
  int between = 0, size = 0;
  PMPI_Comm_test_inter(comm, &between);
  if (between == 0) PMPI_Comm_size(comm, &size);
  if (size < 2 || !within_world(comm, size)) return refuse(unsuitable);
  const quiet_errors quiet(comm);
  const auto has_room = [] {
    const std::lock_guard mine(here.turn);
    return here.all.size() < most_communicators;
  };
  // The ranks agree before and after: one rank may have more communicators than another, or too little memory.
  communicator* ours = nullptr;
  bool attached = false;
  enum : int { full, devices_are_unknown, suitable };
  const int verdict = agree(!has_room() ? full : has_unknown_devices() ? devices_are_unknown : suitable, comm);
  if (verdict == suitable) {
    const bool devices = agree(has_devices() || may_get_unknown_devices() ? 0 : 1, comm) == 0;
    try {
      auto made = std::make_unique<communicator>(comm, here.chosen, devices);
      const std::lock_guard mine(here.turn);
      here.all.push_back(std::move(made));
      ours = here.all.back().get();
    } catch (const std::exception& e) {
      if (here.chosen.verbose) std::fprintf(stderr, "spar: %s\n", e.what());
    }
    attached = ours != nullptr && PMPI_Comm_set_attr(comm, here.attribute, ours) == MPI_SUCCESS;
    if (agree(attached ? 1 : 0, comm) == 1) return ours;
  }
  if (ours != nullptr && !attached) forget(comm, here.attribute, ours, nullptr);
  return refuse(verdict == devices_are_unknown ? beside_devices : unsuitable);
}

/// The object for a communicator that is taken over; null if its calls go to the MPI library, for the reason `why`.
/// Collective in the first call for a communicator.
communicator* of(MPI_Comm comm, reason& why) {
  void* found = nullptr;
  int flag = 0;
  why = reason::communicator;
  if (PMPI_Comm_get_attr(comm, here.attribute, &found, &flag) != MPI_SUCCESS) return nullptr;
  if (flag == 0) found = make(comm);
  if (!is_refusal(found)) return static_cast<communicator*>(found);
  why = *static_cast<const reason*>(found);
  return nullptr;
}

/// A copy in host memory.
std::vector<std::byte> brought_to_host(const void* values, std::size_t bytes) {
  std::vector<std::byte> on_host(bytes);
  copy(on_host.data(), values, bytes);
  return on_host;
}

/// Whether all ranks of MPI_COMM_WORLD share memory; the same on all ranks.
bool world_shares_memory() {
  MPI_Comm host = MPI_COMM_NULL;
  if (PMPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host) != MPI_SUCCESS) return false;
  int on_host = 0, all = 0;
  PMPI_Comm_size(host, &on_host);
  PMPI_Comm_free(&host);
  PMPI_Comm_size(MPI_COMM_WORLD, &all);
  return on_host == all;
}

void write_report() {
  constexpr std::size_t numbers = 4 + reasons;
  std::array<double, numbers> mine{static_cast<double>(here.sum.calls), static_cast<double>(here.sum.bytes_sent),
                                   static_cast<double>(here.sum.bytes_saved), here.sum.seconds};
  std::copy(here.sum.calls_passed.begin(), here.sum.calls_passed.end(), mine.begin() + 4);
  std::array<double, numbers> all{};
  PMPI_Reduce(mine.data(), all.data(), static_cast<int>(numbers), MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  int rank = 0;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank != 0) return;
  const auto [calls, bytes_sent, bytes_saved, seconds] = std::array{all[0], all[1], all[2], all[3]};
  const double passed = std::accumulate(all.begin() + 4, all.end(), 0.0);
  const auto whole = [](double number) { return static_cast<std::int64_t>(number); };
  nlohmann::ordered_json passed_by_reason;
  std::string why;
  for (std::size_t r = 0; r < reasons; ++r) {
    const std::int64_t number = whole(all[4 + r]);
    passed_by_reason[reason_names[r]] = number;
    if (number > 0) why += (why.empty() ? " (" : ", ") + std::string(reason_names[r]) + " " + std::to_string(number);
  }
  if (!why.empty()) why += ')';
  if (here.chosen.verbose) {
    std::fprintf(stderr,
                 "spar: all ranks: %.0f calls taken over, %.0f calls passed to the MPI library%s; %.6g MB sent, %.6g "
                 "MB saved, %.3g s\n",
                 calls, passed, why.c_str(), bytes_sent / 1e6, bytes_saved / 1e6, seconds);
  }
  const char* const file = std::getenv("SPAR_REPORT");
  if (file == nullptr || *file == '\0') return;
  const nlohmann::ordered_json report{
      {"calls", whole(calls)},           {"calls_passed", whole(passed)},     {"passed_by_reason", passed_by_reason},
      {"bytes_sent", whole(bytes_sent)}, {"bytes_saved", whole(bytes_saved)}, {"seconds", seconds}};
  std::ofstream out(file);
  out << report.dump(2) << '\n';
  if (!out.flush()) std::fprintf(stderr, "spar: cannot write the report %s\n", file);
}

} // namespace

void after_init() noexcept {
  if (here.attribute != MPI_KEYVAL_INVALID) return;
  int rank = 0;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) here.chosen = read_settings();
  PMPI_Bcast(&here.chosen, sizeof(here.chosen), MPI_BYTE, 0, MPI_COMM_WORLD);
  if (here.chosen.chosen != algorithm::none) here.one_host = world_shares_memory();
  PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, &forget, &here.attribute, nullptr);
  if (here.chosen.verbose && rank == 0 && here.chosen.chosen != algorithm::none) {
    const auto bytes = [](std::uint64_t n) { return static_cast<unsigned long long>(n); };
    const settings& now = here.chosen;
    if (now.min_exact_bytes_a_rank == 0) { // SPAR_MIN_BYTES sets one limit for all communicators
      std::fprintf(stderr, "spar: MPI_Allreduce is taken over from %llu bytes\n", bytes(now.min_exact_bytes));
    } else {
      std::fprintf(stderr,
                   "spar: MPI_Allreduce is taken over from %llu bytes and %llu bytes per rank, on one host from %llu "
                   "bytes\n",
                   bytes(now.min_exact_bytes), bytes(now.min_exact_bytes_a_rank),
                   bytes(now.min_exact_bytes_on_one_host));
    }
    if (here.chosen.lossy()) {
      const std::string_view text(here.chosen.text.data());
      const std::size_t codec = text.find('+') + 1; // 0 if the text names the slots
      std::fprintf(stderr, "spar: from %llu bytes, sums of float and double are compressed by %s\n",
                   bytes(here.chosen.min_bytes), text.data() + codec);
    }
  }
}

void before_finalize() noexcept {
  if (here.attribute == MPI_KEYVAL_INVALID) return;
  try {
    write_report();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "spar: no report: %s\n", e.what());
  }
  here.chosen.chosen = algorithm::none;
  std::vector<std::unique_ptr<communicator>> all;
  {
    const std::lock_guard mine(here.turn);
    all.swap(here.all);
  }
  const guard own;
  while (!all.empty()) all.pop_back();
}

std::optional<int> take_over(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op,
                             MPI_Comm comm) noexcept {
  if (inside) return std::nullopt;
  const auto pass = [](reason why) {
    here.sum.calls_passed[static_cast<std::size_t>(why)].fetch_add(1, std::memory_order_relaxed);
    return std::nullopt;
  };
  if (here.chosen.chosen == algorithm::none) return pass(reason::invalid_setting);
  // Pass invalid and empty calls to the MPI library, which reports its own errors.
  if (count <= 0 || comm == MPI_COMM_NULL || receive == nullptr || receive == MPI_IN_PLACE || send == nullptr ||
      send == receive) {
    return pass(reason::arguments);
  }
  const reduction* const what = find_reduction(type, op);
  if (what == nullptr) return pass(is_arithmetic(type) ? reason::operation : reason::type);
  const auto n = static_cast<std::size_t>(count);
  // A call too small for two ranks is too small for any number of ranks: pass it before creating a communicator.
  if (!takes(here.chosen, n * what->bytes, *what, 2, here.one_host)) return pass(reason::short_vector);
  const guard own;
  try {
    reason why{};
    communicator* const ours = of(comm, why);
    if (ours == nullptr) return pass(why);
    if (!ours->takes(n * what->bytes, *what)) return pass(reason::short_vector);
    const bool on_device = is_device_memory(receive) || (send != MPI_IN_PLACE && is_device_memory(send));
    // If some rank may have devices, the ranks must agree: one rank's values may be in device memory, another's on the
    // host.
    if (ours->may_have_devices() && agree(on_device || has_unknown_devices() ? 0 : 1, comm) == 0) {
      return pass(reason::device_memory);
    }
    // The ranks do not agree if CUDA was loaded after the communicator was made: then this rank copies its values to
    // the host.
    const double start = PMPI_Wtime();
    if (on_device) {
      const void* const from = send == MPI_IN_PLACE ? receive : send;
      std::vector<std::byte> on_host = ours->needed([&] { return brought_to_host(from, n * what->bytes); });
      ours->allreduce(on_host.data(), n, *what);
      copy(receive, on_host.data(), on_host.size());
    } else {
      if (send != MPI_IN_PLACE) std::memcpy(receive, send, n * what->bytes);
      ours->allreduce(receive, n, *what);
    }
    const spar::statistics& cost = ours->last_call();
    here.sum.calls.fetch_add(1, std::memory_order_relaxed);
    const auto sent = static_cast<std::int64_t>(cost.bytes_sent);
    here.sum.bytes_sent.fetch_add(sent, std::memory_order_relaxed);
    here.sum.bytes_saved.fetch_add(static_cast<std::int64_t>(cost.plain_bytes_sent) - sent, std::memory_order_relaxed);
    here.sum.seconds.fetch_add(PMPI_Wtime() - start, std::memory_order_relaxed);
    return MPI_SUCCESS;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "spar: MPI_Allreduce: %s\n", e.what());
    PMPI_Comm_call_errhandler(comm, MPI_ERR_OTHER);
    return MPI_ERR_OTHER;
  }
}

} // namespace preload

#pragma GCC visibility push(default)
extern "C" {

int MPI_Init(int* argc, char*** argv) {
  const int code = PMPI_Init(argc, argv);
  if (code == MPI_SUCCESS) preload::after_init();
  return code;
}
int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  const int code = PMPI_Init_thread(argc, argv, required, provided);
  if (code == MPI_SUCCESS) preload::after_init();
  return code;
}
int MPI_Finalize(void) {
  preload::before_finalize();
  return PMPI_Finalize();
}
int MPI_Allreduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  const auto code = preload::take_over(send, receive, count, type, op, comm);
  return code ? *code : PMPI_Allreduce(send, receive, count, type, op, comm);
}
}
#pragma GCC visibility pop
