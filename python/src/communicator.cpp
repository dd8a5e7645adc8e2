// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A communicator in Python: threads, signals and fork.
#include "communicator.hpp"

#include <pthread.h>

#include <chrono>

namespace spar_python {

namespace {

// How many forks lie between this process and the one that loaded the library.
std::atomic<unsigned> forks = 0;

unsigned forks_so_far() noexcept {
  static const int watching = pthread_atfork(nullptr, nullptr, [] { ++forks; });
  static_cast<void>(watching);
  return forks;
}

constexpr const char* interrupted_text = "interrupted by a signal, such as Ctrl-C";

/// Whether a signal handler of Python has raised. Its exception then stays set for this thread.
bool signal_raised() {
  const nb::gil_scoped_acquire held;
  return PyErr_CheckSignals() != 0;
}

} // namespace

communicator::communicator(std::uintptr_t handle, bool in_threads) noexcept
    : comm_(reinterpret_cast<spar_comm>(handle)), forks_(forks_so_far()), in_threads_(in_threads) {}

communicator::~communicator() {
  if (comm_ == nullptr || !in_its_process()) return;
  const nb::gil_scoped_release released;
  static_cast<void>(spar_comm_free(&comm_));
}

bool communicator::in_its_process() const noexcept { return forks_ == forks; }

void communicator::check_process() const {
  if (!in_its_process()) {
    PyErr_SetString(PyExc_RuntimeError, "this communicator was made before a fork, and works only in the process that "
                                        "made it; make one in the child process, or start processes by spawn");
    throw nb::python_error();
  }
}

spar_comm communicator::handle() const {
  check_process();
  if (comm_ == nullptr) raise(SPAR_ERR_INVALID_ARGUMENT, "the communicator is closed");
  return comm_;
}

int communicator::rank() const {
  int rank = 0;
  check(spar_comm_rank(handle(), &rank));
  return rank;
}

int communicator::size() const {
  int size = 0;
  check(spar_comm_size(handle(), &size));
  return size;
}

void communicator::set_deadline(double seconds) {
  run([seconds](spar_comm comm) { return spar_comm_set_deadline(comm, seconds); });
  deadline_ = seconds;
}

void communicator::abort(const std::string& reason) {
  static_cast<void>(handle());
  const nb::gil_scoped_release released;
  {
    const std::lock_guard lock(state_);
    abort_reason_ = reason;
    aborting_ = true;
  }
  if (!running_.try_lock()) return; // the thread that has the turn aborts
  const turn held(*this, std::adopt_lock);
}

void communicator::abort_if_asked() {
  if (!aborting_) return;
  const std::lock_guard lock(state_);
  aborting_ = false;
  if (comm_ != nullptr) static_cast<void>(spar_comm_abort(comm_, abort_reason_.c_str()));
}

void communicator::close() {
  check_process();
  const nb::gil_scoped_release released;
  const turn held(*this);
  if (comm_ != nullptr) static_cast<void>(spar_comm_free(&comm_));
}

void communicator::begin_started() {
  static_cast<void>(handle());
  const std::lock_guard lock(state_);
  ++started_;
}

void communicator::end_started() noexcept {
  const std::lock_guard lock(state_);
  if (--started_ == 0) idle_.notify_all();
}

communicator::turn::turn(communicator& of) : of_(of) {
  if (of.worker_.load() != std::this_thread::get_id()) {
    std::unique_lock lock(of.state_);
    while (!of.idle_.wait_for(lock, std::chrono::milliseconds(50), [&] { return of.started_ == 0; })) {
      lock.unlock();
      if (signal_raised()) {
        const nb::gil_scoped_acquire held;
        nb::python_error raised;
        of.abort(interrupted_text);
        throw raised;
      }
      lock.lock();
    }
  }
  of.running_.lock();
}

communicator::turn::~turn() {
  of_.abort_if_asked();
  of_.running_.unlock();
}

int communicator::finish(spar_request request) {
  for (;;) {
    int done = 0;
    if (const int status = spar_wait_for(request, 0.05, &done); status != SPAR_SUCCESS) {
      static_cast<void>(spar_request_free(&request));
      return status;
    }
    if (done) return spar_wait(&request);
    abort_if_asked();
    if (!interrupted_ && signal_raised()) {
      interrupted_ = true;
      static_cast<void>(spar_comm_abort(comm_, interrupted_text));
    }
  }
}

void communicator::fail(const outcome& ended) {
  if (std::exchange(interrupted_, false)) throw nb::python_error();
  raise(ended.status, ended.text);
}

} // namespace spar_python
