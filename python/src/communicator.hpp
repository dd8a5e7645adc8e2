// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A communicator in Python: the rules of threads, of signals and of fork around the calls of the C interface.
#pragma once

#include "errors.hpp"

#include <nanobind/nanobind.h>

#include <spar/spar.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

namespace spar_python {

namespace nb = nanobind;

/// Owns a handle of a communicator. Blocking calls run on the thread of the caller, without the GIL. Started calls run
/// on one worker thread in the order of the program; a blocking call waits for them first.
class communicator {
 public:
  /// `in_threads` says that the ranks are threads of this process.
  communicator(std::uintptr_t handle, bool in_threads) noexcept;
  communicator(const communicator&) = delete;
  ~communicator();

  /// The handle, for functions that make no collective call. Throws after `close` and in a child process.
  [[nodiscard]] spar_comm handle() const;
  /// Whether no fork lies between the communicator and this process: a child frees nothing.
  [[nodiscard]] bool in_its_process() const noexcept;
  [[nodiscard]] bool in_threads() const noexcept { return in_threads_; }
  /// Whether kernels may reduce values in device memory. Among threads, all ranks would have to have values there, and
  /// a progress thread has a current device of its own.
  [[nodiscard]] bool has_kernels() const noexcept { return !in_threads_ && !has_progress_thread_; }
  void set_progress_thread() noexcept { has_progress_thread_ = true; }
  [[nodiscard]] int rank() const;
  [[nodiscard]] int size() const;
  [[nodiscard]] double deadline() const noexcept { return deadline_; }
  void set_deadline(double seconds);
  /// Ends the calls of all ranks. Any thread may call it.
  void abort(const std::string& reason);
  /// Waits for started calls, and frees the communicator. Nothing happens if it is closed already.
  void close();

  /// Counts a call that the worker will run, until `end_started`.
  void begin_started();
  void end_started() noexcept;
  /// Marks the calling thread as the worker.
  void set_worker() noexcept { worker_ = std::this_thread::get_id(); }

  /// Makes a call: `start(comm, &request)` starts it, and returns its status. Waits for its end without the GIL, and
  /// throws its error, or what a signal handler of Python has raised, for which the communicator is aborted.
  template <class Start>
  void call(const Start& start) {
    run([&](spar_comm comm) {
      spar_request request = nullptr;
      const int status = start(comm, &request);
      return status == SPAR_SUCCESS ? finish(request) : status;
    });
  }

  /// Makes a call that cannot be started: `work(comm)` returns its status. Signals wait until it has ended.
  template <class Work>
  void run(const Work& work) {
    const spar_comm comm = handle();
    run_idle([&] { return work(comm); });
  }

  /// Does `work()`, which needs no open communicator, when no call runs.
  template <class Work>
  void run_idle(const Work& work) {
    check_process();
    outcome ended;
    {
      const nb::gil_scoped_release released;
      const turn held(*this);
      ended.status = work();
      if (ended.status != SPAR_SUCCESS) ended.text = spar_error_text(nullptr);
    }
    if (ended.status != SPAR_SUCCESS || interrupted_) fail(ended);
  }

 private:
  struct outcome {
    int status = SPAR_SUCCESS;
    std::string text;
  };
  /// The right to use the handle, which one thread at a time has.
  struct turn {
    explicit turn(communicator& of);
    turn(communicator& of, std::adopt_lock_t) noexcept : of_(of) {}
    turn(const turn&) = delete;
    ~turn();
    communicator& of_;
  };

  [[nodiscard]] int finish(spar_request request);
  void abort_if_asked();
  [[noreturn]] void fail(const outcome& ended);
  void check_process() const;

  spar_comm comm_;
  unsigned forks_; // of this process before the communicator was made
  bool in_threads_;
  bool has_progress_thread_ = false; // from the first partial reducer on
  double deadline_ = 600;
  std::mutex running_; // held during a call
  std::mutex state_;   // of the following members
  std::condition_variable idle_;
  int started_ = 0;
  std::atomic<bool> aborting_ = false;
  std::string abort_reason_;
  std::atomic<std::thread::id> worker_{};
  bool interrupted_ = false; // a signal handler has raised, during the call that `running_` protects
};

} // namespace spar_python
