// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The scheduler of on_host.hpp. Programs with kernels switch between fibres millions of times, so it is compiled with
// optimisation, once for all of them.
#include "on_host.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#ifdef SPAR_SANITIZES_ADDRESSES
#include <sanitizer/common_interface_defs.h>
#endif
// The thread sanitizer takes the fibres of a launch for the host thread that runs the launch: what a kernel does comes
// after what this thread has done, and before what it does later. (With a fibre of the sanitizer for each of ours, a
// switch takes 20 microseconds.) The sanitizer must not see functions that never return, because it would never forget
// their calls; the calls that it reports below that of a kernel may be those of another fibre. For the address
// sanitizer, functions that never return would leave marks on a stack that another fibre gets.
#define SPAR_UNSANITIZED __attribute__((no_sanitize("address", "thread")))

#ifdef __x86_64__
// swapcontext() asks the system for the mask of signals, which would take half of the time of the tests.
extern "C" void on_host_switch(void** from, void* to);
asm(R"(
  .text
  .type on_host_switch, @function
on_host_switch:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
)");
#endif

namespace on_host {

namespace {

#ifdef SPAR_SANITIZES_ADDRESSES
constexpr std::size_t stack_bytes = 96 << 10;
void enter_stack(void** kept, const void* stack, std::size_t size) {
  __sanitizer_start_switch_fiber(kept, stack, size);
}
void leave_stack(void* kept, const void** stack, std::size_t* size) {
  __sanitizer_finish_switch_fiber(kept, stack, size);
}
#else
constexpr std::size_t stack_bytes = 64 << 10;
void enter_stack(void**, const void*, std::size_t) {}
void leave_stack(void*, const void**, std::size_t*) {}
#endif

#ifdef __x86_64__
void prepare(context& registers, std::byte* stack, void (*entry)()) {
  void** const end = reinterpret_cast<void**>(stack + stack_bytes);
  end[-2] = reinterpret_cast<void*>(entry); // to which on_host_switch returns
  end[-1] = nullptr;                        // to which `entry` would return
  registers = end - 8;
}
SPAR_UNSANITIZED void change(context& from, context& to) { on_host_switch(&from, to); }
#else
void prepare(context& registers, std::byte* stack, void (*entry)()) {
  getcontext(&registers);
  registers.uc_stack = {stack, 0, stack_bytes};
  registers.uc_link = nullptr;
  makecontext(&registers, entry, 0);
  registers.uc_stack = {}; // or the address sanitizer forgets the stack's frames whenever it switches to the fibre
}
SPAR_UNSANITIZED void change(context& from, context& to) { swapcontext(&from, &to); }
#endif

std::vector<std::unique_ptr<std::byte[]>> stacks; // of blocks that have ended, for later ones

} // namespace

machine::machine(unsigned blocks, unsigned threads, std::size_t shared, std::function<void()> kernel)
    : blocks_(blocks), threads_(threads), shared_(shared), kernel_(std::move(kernel)), random_(seed + launches++),
      begun_(last_blocks > 0 && last_blocks < blocks ? blocks - last_blocks : 0) {}

void machine::run() {
  current = this;
  while (resident_.size() < resident && begun_ < blocks_) begin_block();
  while (!resident_.empty()) {
    fibre* const next = choose();
    if (next == nullptr) throw_stuck();
    enter(*next);
    if (running_->now == fibre::state::ended && ++running_->of->ended == running_->of->threads)
      end_block(*running_->of);
  }
  current = nullptr;
}

void machine::pause(fibre::state until) {
  fibre& self = *running_;
  self.now = until;
  if (until == fibre::state::ready) ready_.push_back(&self);
  fibre* const next = choose();
  if (next != &self) leave(self, next);
}

void machine::barrier() {
  block& b = *running_->of;
  if (++b.waiting < b.threads) return pause(fibre::state::at_barrier);
  b.waiting = 0;
  for (fibre& f : b.fibres) wake(f, fibre::state::at_barrier);
  pause(); // any thread may be the first to go on
}

const std::uint64_t* machine::exchange(std::uint32_t mask, std::uint64_t mine) {
  if (mask != 0xffffffffU) throw kernel_error("a warp operation without all lanes");
  fibre& self = *running_;
  const unsigned lane = self.thread % 32, set = self.exchanges++ % 2;
  warp& w = self.of->warps[self.thread / 32];
  w.value[set][lane] = mine;
  w.arrived[set] |= 1U << lane;
  if (w.arrived[set] != mask) {
    pause(fibre::state::in_warp);
  } else {
    w.arrived[1 - set] = 0; // all lanes have left the operation before this one
    for (unsigned l = 0; l < 32; ++l) wake(self.of->fibres[self.thread / 32 * 32 + l], fibre::state::in_warp);
  }
  return w.value[set];
}

void machine::begin_block() {
  block& b = *resident_.emplace_back(std::make_unique<block>());
  b.number = begun_++;
  b.threads = threads_;
  b.memory.resize((shared_ + sizeof(std::max_align_t) - 1) / sizeof(std::max_align_t));
  const auto bytes = std::as_writable_bytes(std::span(b.memory));
  std::fill(bytes.begin(), bytes.end(), std::byte{0xa5}); // shared memory is not initialised
  b.warps.resize(threads_ / 32);
  b.fibres.resize(threads_);
  for (unsigned t = 0; t < threads_; ++t) {
    fibre& f = b.fibres[t];
    f.of = &b;
    f.thread = t;
    if (stacks.empty()) stacks.push_back(std::make_unique_for_overwrite<std::byte[]>(stack_bytes));
    f.stack = std::move(stacks.back());
    stacks.pop_back();
    prepare(f.registers, f.stack.get(), entry);
    ready_.push_back(&f);
  }
}

void machine::end_block(const block& ended) {
  for (std::size_t i = 0; i < resident_.size(); ++i) {
    if (resident_[i].get() != &ended) continue;
    for (fibre& f : resident_[i]->fibres) stacks.push_back(std::move(f.stack));
    resident_.erase(resident_.begin() + static_cast<std::ptrdiff_t>(i));
    break;
  }
  if (begun_ < blocks_) begin_block();
}

void machine::wake(fibre& f, fibre::state from) {
  if (f.now != from) return;
  f.now = fibre::state::ready;
  ready_.push_back(&f);
}

/// The fibre that runs next; null if none can go on, or if the kernel counts as endless.
fibre* machine::choose() {
  if (ready_.empty() || switches_ == most_switches) return nullptr;
  ++switches_;
  std::swap(ready_[random_() % ready_.size()], ready_.back());
  fibre* const next = ready_.back();
  ready_.pop_back();
  return next;
}

void machine::throw_stuck() const {
  if (switches_ == most_switches) throw kernel_error("a kernel spins without an end");
  std::string text = "no thread can go on:";
  for (const auto& b : resident_) {
    unsigned barrier = 0, inside = 0, over = 0;
    for (const fibre& f : b->fibres) {
      barrier += f.now == fibre::state::at_barrier ? 1 : 0;
      inside += f.now == fibre::state::in_warp ? 1 : 0;
      over += f.now == fibre::state::ended ? 1 : 0;
    }
    text += " block " + std::to_string(b->number) + " has " + std::to_string(barrier) + " threads at a barrier, " +
            std::to_string(inside) + " in a warp operation, " + std::to_string(over) + " that have ended;";
  }
  throw kernel_error(text);
}

/// Runs fibres, first `f`, until one ends or none can go on.
void machine::enter(fibre& f) {
  running_ = &f;
  enter_stack(&sanitizer_home_, f.stack.get(), stack_bytes);
  change(home_, f.registers);
  leave_stack(sanitizer_home_, nullptr, nullptr);
}

/// Goes on with the fibre `next`, or with enter() if it is null.
SPAR_UNSANITIZED void machine::leave(fibre& f, fibre* next) {
  void** const kept = f.now == fibre::state::ended ? nullptr : &f.sanitizer_stack;
  if (next == nullptr) {
    enter_stack(kept, home_stack_, home_size_);
    change(f.registers, home_);
  } else {
    running_ = next;
    enter_stack(kept, next->stack.get(), stack_bytes);
    change(f.registers, next->registers);
  }
  leave_stack(f.sanitizer_stack, nullptr, nullptr);
}

SPAR_UNSANITIZED void machine::entry() {
  machine& m = *current;
  const bool first = m.home_stack_ == nullptr; // so it comes from enter()
  leave_stack(nullptr, first ? &m.home_stack_ : nullptr, first ? &m.home_size_ : nullptr);
  m.kernel_();
  m.running_->now = fibre::state::ended;
  m.leave(*m.running_, nullptr);
}

coordinates coordinates::of_thread() { return {machine::current->running().thread}; }
coordinates coordinates::of_block() { return {machine::current->running().of->number}; }
coordinates coordinates::of_grid() { return {machine::current->blocks()}; }

} // namespace on_host

std::uint32_t __ballot_sync(std::uint32_t mask, bool mine) {
  const std::uint64_t* const all = on_host::machine::current->exchange(mask, mine ? 1 : 0);
  std::uint64_t bits = 0;
  for (unsigned l = 0; l < 32; ++l) bits |= all[l] << l;
  return static_cast<std::uint32_t>(bits);
}
