// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The systems on values in device memory: `suite().add_device(std::make_shared<device_systems<spar::threads>>())`.
// Compile with nvcc, and with SPAR_WITH_NCCL for the system nccl.
#pragma once

#include "device_memory.hpp"
#include "measured_net.hpp"
#include "systems.hpp"
#include "text_systems.hpp"

#ifdef SPAR_WITH_NCCL
#include "nccl_allreduce.hpp"
#endif

#include <spar/cuda.hpp>
#include <spar/cuda/memory.hpp>
#include <spar/cuda/values/named_codec.cuh>
#include <spar/cuda_feedback.cuh>
#include <spar/on_device.cuh>
#include <spar/spar.hpp>
#ifdef SPAR_WITH_MPI
#include <spar/mpi.hpp>
#endif

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace spar::perf {

namespace detail {

/// The number of this rank among the ranks of its host.
inline int number_on_host(const spar::threads& net) { return static_cast<int>(net.rank()); }
#ifdef SPAR_WITH_MPI
inline int number_on_host(const spar::mpi& net) {
  MPI_Comm host = MPI_COMM_NULL;
  spar::detail::check_mpi(MPI_Comm_split_type(net.communicator(), MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host),
                          "MPI_Comm_split_type");
  int number = 0;
  MPI_Comm_rank(host, &number);
  MPI_Comm_free(&host);
  return number;
}
#endif

/// Whether MPI_Allreduce takes pointers to device memory.
inline bool mpi_takes_device_memory() {
#if defined(SPAR_WITH_MPI) && defined(MPIX_CUDA_AWARE_SUPPORT)
  return MPIX_Query_cuda_support() == 1;
#else
  return false;
#endif
}

/// Reduces entries by an allreduce of streams. A template, because nvcc 13.0 crashes otherwise.
template <class By, class T, class Index>
spar::task<spar::selected_sum<T, Index>> reduce_stream(channel net, const By* by, spar::sparse_stream<T, Index> mine,
                                                       spar::sum op) {
  auto running = (*by)(net, mine.view(), op);
  spar::sparse_stream<T, Index> sum = co_await std::move(running);
  co_return spar::selected_sum<T, Index>(std::move(sum), std::move(mine));
}

/// A composition whose selector runs on the device, and whose schedule is that of any system (see any_algorithm.hpp):
/// device_feedback is then compiled once for each selector. With an allreduce of streams, the rounding errors of a
/// codec do not return to the residual, as in spar_perf's calls on host memory.
template <class Selector>
class any_composition {
  using stream = spar::sparse_stream<float, std::uint32_t>;
  using selected_sum = spar::selected_sum<float, std::uint32_t>;
  using by_streams = any_allreduce<float, std::uint32_t>;
  using by_entries = any_selecting<float, std::uint32_t>;

 public:
  static constexpr std::string_view name = "spar_perf";
  using selector_type = Selector;
  using storage_type = spar::storage::coo;

  struct state {
    spar::state_of<Selector> select{};
    any_object by;

    void shared_state(auto&& f) { select.shared_state(f), by.visit(true, std::ref(f)); }
    void own_state(auto&& f) { select.own_state(f), by.visit(false, std::ref(f)); }
  };
  struct report {
    std::uint64_t selected = 0;
    double select_seconds = 0;
    any_object by{};
  };

  any_composition(const Selector& how, std::variant<by_streams, by_entries> schedule) : select(how), by_(schedule) {}

  Selector select;

  template <spar::element T>
  void validate_parts(std::uint64_t n, spar::rank_t ranks) const {
    select.validate(n);
    if (const auto* const streams = std::get_if<by_streams>(&by_))
      streams->template validate<T>(n, ranks, spar::sum{});
    else
      std::get<by_entries>(by_).template validate_parts<T>(n, ranks);
  }
  void options(auto&& f) const {
    f("select", select);
    std::visit([&](const auto& by) { by.options(f); }, by_);
  }
  spar::task<selected_sum> reduce_selected(channel net, state* now, report* last, stream mine,
                                           spar::residual_view<float> residual, spar::sum op) const& {
    if (const auto* const streams = std::get_if<by_streams>(&by_))
      return reduce_stream(net, streams, std::move(mine), op);
    return std::get<by_entries>(by_).reduce(net, &now->by, &last->by, std::move(mine), residual, op);
  }

 private:
  std::variant<by_streams, by_entries> by_;
};

/// The device memory of a rank, and what works on it: kept by its `measured_net`.
template <class Net>
class device_rank {
 public:
  explicit device_rank(measured_net& net) : net_(&net), staged_(net) {
    int devices = 0;
    spar::detail::check_cuda(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
    spar::detail::check_cuda(cudaSetDevice(number_on_host(net.wrapped<Net>()) % devices), "cudaSetDevice");
    order_.emplace();
  }

  static device_rank& of(measured_net& net) {
    return net.keep<device_rank>([&] { return std::make_shared<device_rank>(net); });
  }

  /// Collective among all ranks, like the constructor of spar::on_device.
  void allow_kernels() {
    if (!kernels_) kernels_.emplace(net_->wrapped<Net>());
  }
  [[nodiscard]] spar::on_device<Net>& kernels() { return *kernels_; }
#ifdef SPAR_WITH_NCCL
  /// Collective among all ranks.
  void allow_nccl() {
    if (!nccl_) nccl_.emplace(net_->wrapped<Net>());
  }
  [[nodiscard]] nccl_allreduce& nccl() { return *nccl_; }
#endif
  [[nodiscard]] spar::staged<measured_net>& staged() noexcept { return staged_; }

  /// Copies the input of a call to the device, and waits for the copy.
  void write(std::span<const float> values) {
    values_.reserve(values.size());
    size_ = values.size();
    copy(values_.data(), values.data(), cudaMemcpyHostToDevice);
  }
  void read(std::span<float> values) const { copy(values.data(), values_.data(), cudaMemcpyDeviceToHost); }
  [[nodiscard]] spar::device_span<float> values() { return {values_.data(), size_, order_->get()}; }
  /// Waits until the work on the values has ended.
  void wait() const { spar::detail::check_cuda(cudaStreamSynchronize(order_->get()), "cudaStreamSynchronize"); }

  /// The residual of a `device_feedback` as values in host memory; valid until the next call.
  std::span<const float> on_host(const float* residual) {
    residual_.resize(residual == nullptr ? 0 : static_cast<std::size_t>(size_));
    if (residual != nullptr) copy(residual_.data(), residual, cudaMemcpyDeviceToHost);
    return residual_;
  }

 private:
  /// Copies all values once the work on them has ended, and waits for the copy.
  void copy(float* to, const float* from, cudaMemcpyKind kind) const {
    wait();
    spar::detail::check_cuda(cudaMemcpy(to, from, static_cast<std::size_t>(size_) * sizeof(float), kind), "cudaMemcpy");
    spar::detail::check_cuda(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
  }

  measured_net* net_;
  std::optional<spar::detail::device_stream> order_; // created on the device that the constructor chooses
  spar::detail::device_array<float> values_;
  std::uint64_t size_ = 0;
  std::vector<float> residual_;
  spar::staged<measured_net> staged_;
  std::optional<spar::on_device<Net>> kernels_;
#ifdef SPAR_WITH_NCCL
  std::optional<nccl_allreduce> nccl_;
#endif
};

/// A call on values in device memory, and the residual that it keeps there, if any.
template <class Net>
struct device_call {
  std::function<void(spar::on_device<Net>&, spar::device_span<float>)> reduce;
  std::function<const float*()> residual;
};

/// Whether the storage of an algorithm is storage::bound, whose codes are made in host memory.
template <class Algorithm>
inline constexpr bool sums_codes =
    requires(const Algorithm& a) { requires std::same_as<decltype(a.store), spar::storage::bound>; };

/// Which systems spar::on_device can run: gets the same systems as `registry`, and keeps those that reduce dense values
/// or selected entries by kernels.
template <class Net>
class systems_on_device : public registry_base<float, std::uint32_t> {
 public:
  using registry_base::registry_base;
  using make_call = std::function<device_call<Net>()>; ///< makes the call of a rank

  template <class Given>
  void add_values(std::string name, Given given, double /*relative_error*/ = 0) {
    auto algorithm = spar::detail::as_algorithm(std::move(given));
    if constexpr (spar::detail::runs_on_device<decltype(algorithm), float> && !sums_codes<decltype(algorithm)>) {
      if (!spar::detail::reduces_values_alone<decltype(algorithm)> && !spar::detail::has_codec_on_device(algorithm))
        return;
      const auto reduce = [algorithm](spar::on_device<Net>& gpu, spar::device_span<float> x) {
        spar::allreduce(gpu, x, algorithm);
      };
      calls_[std::move(name)] = [reduce] { return device_call<Net>{reduce, [] { return nullptr; }}; };
    }
  }
  /// Like `registry::add`: streams at densities below 1, if the algorithm reduces streams.
  template <class Given>
  void add(std::string name, Given given, double relative_error = 0) {
    using algorithm = decltype(spar::detail::as_algorithm(given));
    if constexpr (spar::stream_allreduce<algorithm, measured_net, float, std::uint32_t, spar::sum>) {
      if (density() < 1) return add_streams(std::move(name), std::move(given), relative_error);
    }
    add_values(std::move(name), std::move(given), relative_error);
  }
  void add_planned(std::string name, spar::flex_plan (*make)(const spar::tree&, std::uint64_t)) {
    const auto plan = keep(make(topology(), planned(name)));
    add(std::move(name), spar::flexreduce(*plan));
  }
  /// The streams are selected from dense values, with error feedback. A codec of the sum's blocks also returns its
  /// rounding errors to the residual, which spar_perf's calls on host memory do not.
  template <class Given>
  void add_streams(std::string name, Given given, double /*relative_error*/ = 0) {
    auto algorithm = spar::detail::as_algorithm(std::move(given));
    if constexpr (spar::detail::reduces_streams_on_device<decltype(algorithm), float>) {
      const spar::selector::exact_topk select{.k = k()};
      add_feedback(std::move(name), spar::compose(select, algorithm.store, algorithm.over, algorithm.by));
    }
  }
  template <class Algorithm>
  void add_feedback(std::string name, Algorithm algorithm) {
    if constexpr (spar::detail::runs_on_device<Algorithm, float>) {
      if (!spar::detail::has_codec_on_device(algorithm)) return;
      calls_[std::move(name)] = [algorithm] {
        const auto its = std::make_shared<spar::device_feedback<float, Algorithm>>(algorithm);
        return device_call<Net>{[its](spar::on_device<Net>& gpu, spar::device_span<float> x) { (*its)(gpu, x); },
                                [its] { return its->residual(); }};
      };
    }
  }
  template <class Model>
  void add_model(const Model&) {}
  void is_lossy(double, bool) {}

  /// Null if there are no kernels for the system.
  [[nodiscard]] const make_call* find(const std::string& name) const {
    const auto found = calls_.find(name);
    return found == calls_.end() ? nullptr : &found->second;
  }

 private:
  std::map<std::string, make_call> calls_;
};

} // namespace detail

/// The systems on values in device memory, over the transport of `Net`. A system reduces
/// - on the device, if spar::on_device can run it, on dense values or on selected entries;
/// - its entries on the host, if spar::device_feedback has its selector: the vector, the residual and the selection are
///   then on the device;
/// - staged through the host, if it reduces dense values in another way.
template <class Net>
class device_systems : public device_memory {
  using data_type = rank_data<float, std::uint32_t>;
  using on_rank = rank_system<float, std::uint32_t>;
  using inner = inner_system<float, std::uint32_t>;
  using rank = detail::device_rank<Net>;

 public:
  void check() const override {
    int devices = 0;
    const cudaError_t code = cudaGetDeviceCount(&devices);
    if (code == cudaSuccess && devices > 0) return;
    throw missing(std::string("--memory device needs a GPU of NVIDIA and its driver: cudaGetDeviceCount says '") +
                  (code == cudaSuccess ? "no devices" : cudaGetErrorString(code)) + "'");
  }

  void place(std::vector<entry>& systems, const options& o, double density, const spar::tree& topology,
             const mpi_allreduce& mpi) const override {
    const auto there = std::make_shared<detail::systems_on_device<Net>>(o, density, topology);
    register_systems(*there);
    register_texts(*there);
    place(systems, o, there, mpi);
  }
  /// Like the above, with other systems on the device.
  void place(std::vector<entry>& systems, const options& o, std::shared_ptr<detail::systems_on_device<Net>> there,
             const mpi_allreduce& mpi) const {
    for (std::size_t s = 0; s < systems.size(); ++s) {
      entry& system = systems[s];
      if (system.is_mpi) {
        place_mpi(system, mpi);
      } else if (o.systems[s] == nccl_system) {
        place_nccl(system);
      } else if (system.partial) {
        throw missing("partial systems such as " + system.name + " reduce values in host memory only");
      } else if (const auto* const make = there->find(o.systems[s])) {
        system.memory = "device";
        system.on_rank = [there, make] { return on_kernels(std::make_shared<detail::device_call<Net>>((*make)())); };
      } else if (!system.within().dense || system.within().selecting) {
        place_selecting(system);
      } else {
        place_staged(system);
      }
    }
  }

 private:
  /// A task that never suspends: makes a call on the rank's values in device memory. The time ends with the work in the
  /// stream.
  template <class Call>
  static spar::task<call_cost> measure_call(measured_net& net, Call call, bool counted) {
    rank& own = rank::of(net);
    call_cost cost;
    calls_of_device = {};
    const double start = net.now();
    call(own, net);
    if (counts_device_calls) cost.device = calls_of_device;
    own.wait();
    cost.seconds = net.now() - start;
    cost.counted = counted;
    if (counted) cost.cost = net.last_call();
    co_return cost;
  }

  template <class Call>
  static on_rank on_values(Call call, std::function<std::span<const float>()> residual = no_residual,
                           bool counted = true) {
    on_rank made;
    made.call = [call, counted](measured_net& net, data_type&) { return measure_call(net, call, counted); };
    made.residual = std::move(residual);
    made.prepare = [](measured_net& net, const data_type& data) { rank::of(net).write(data.dense_in); };
    // Not earlier: the few bytes for which another rank still waits would arrive after this vector.
    made.fetch = [](measured_net& net, data_type& data) {
      rank::of(net).read(data.dense_out);
      data.result = spar::dense_view<std::uint32_t>(data.dense_out);
    };
    return made;
  }
  static std::span<const float> no_residual() { return {}; }

  static on_rank on_kernels(std::shared_ptr<detail::device_call<Net>> call) {
    const auto last = std::make_shared<rank*>(nullptr); // where the last call was
    on_rank made = on_values(
        [call, last](rank& own, measured_net&) {
          *last = &own;
          call->reduce(own.kernels(), own.values());
        },
        [call, last]() -> std::span<const float> {
          if (*last == nullptr) return {};
          return (*last)->on_host(call->residual());
        });
    made.open = [](measured_net& net) { rank::of(net).allow_kernels(); };
    return made;
  }
  static void place_staged(entry& system) {
    system.memory = "staged";
    system.on_rank = [make = system.within] {
      const auto reduce = std::make_shared<const inner>(make());
      return on_values(
          [reduce](rank& own, measured_net&) { spar::allreduce(own.staged(), own.values(), reduce->algorithm); },
          reduce->residual);
    };
  }

  static void place_selecting(entry& system) {
    const inner its = system.within();
    if (!its.selecting) return place_selecting(system, spar::selector::exact_topk{.k = system.k});
    const auto by = [&](const auto& selector) {
      if constexpr (requires { selector.k; })
        place_selecting(system, selector);
      else
        place_staged(system); // the device does not have the selector
    };
    std::visit(by, its.selecting->selector());
  }
  template <class Selector>
  static void place_selecting(entry& system, const Selector& select) {
    system.memory = "entries";
    system.on_rank = [make = system.within, select] {
      using feedback = spar::device_feedback<float, detail::any_composition<Selector>>;
      struct reducer {
        reducer(inner from, const Selector& by)
            : its(std::move(from)), reduce(its.selecting ? detail::any_composition<Selector>(by, *its.selecting)
                                                         : detail::any_composition<Selector>(by, its.algorithm)) {}
        inner its;
        feedback reduce;
        rank* own = nullptr;
      };
      const auto object = std::make_shared<reducer>(make(), select);
      on_rank made = on_values(
          [object](rank& own, measured_net& net) {
            object->own = &own;
            object->reduce(net, own.values());
          },
          [object]() -> std::span<const float> {
            if (object->own == nullptr) return {};
            return object->own->on_host(object->reduce.residual());
          });
      return made;
    };
  }

  static void place_nccl(entry& system) {
#ifdef SPAR_WITH_NCCL
    system.memory = "device";
    system.on_rank = [] {
      on_rank made = on_values([](rank& own, measured_net&) { own.nccl()(own.values()); }, no_residual, false);
      made.open = [](measured_net& net) { rank::of(net).allow_nccl(); };
      return made;
    };
#else
    throw missing("system " + system.name + " is ncclAllReduce: compile spar_perf with SPAR_WITH_NCCL, and link NCCL");
#endif
  }
  static void place_mpi(entry& system, const mpi_allreduce& reduce) {
    system.memory = "staged";
    const bool direct = detail::mpi_takes_device_memory();
    if (direct) system.memory = "device";
    system.on_rank = [reduce, direct] {
      return on_values(
          [reduce, direct](rank& own, measured_net&) {
            const auto in_place = [&](std::span<float> x) { reduce(nullptr, x.data(), x.size()); };
            const spar::device_span<float> x = own.values();
            if (direct) {
              own.wait(); // MPI knows nothing of streams
              in_place({x.data, static_cast<std::size_t>(x.size)});
            } else {
              own.staged().on_host(x, in_place);
            }
          },
          no_residual, false);
    };
  }
};

} // namespace spar::perf
