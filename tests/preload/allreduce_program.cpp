// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A program that uses only MPI: every predefined arithmetic type and operation, in place and not, on communicators of
// all kinds and from several threads, and errors. Ends with status 0 if MPI_Allreduce did what the MPI standard says.
#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <vector>

namespace {

int failures = 0;
bool lossy = false; // sums of float and double may be off by a twentieth

void expect(bool condition, const std::string& what) {
  if (condition) return;
  ++failures;
  if (failures <= 20) std::fprintf(stderr, "FAILED: %s\n", what.c_str());
}

int rank_in(MPI_Comm comm) {
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  return rank;
}
int size_of(MPI_Comm comm) {
  int size = 0;
  MPI_Comm_size(comm, &size);
  return size;
}

/// Small whole numbers; every sum and every product of eight of them is exact in every type.
template <class T>
T value_of(int rank, int i) {
  const int value = (rank + i) % 3 == 0 ? 2 : (rank * 7 + i) % 2;
  if constexpr (std::is_same_v<T, std::complex<float>>)
    return static_cast<float>(value);
  else
    return static_cast<T>(value);
}

/// The expected result: MPI's own reduction of two vectors, applied to those of all ranks one after the other.
template <class T>
std::vector<T> reference(int n, int ranks, MPI_Datatype type, MPI_Op op) {
  std::vector<T> all(static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i) all[static_cast<std::size_t>(i)] = value_of<T>(0, i);
  std::vector<T> next(all.size());
  for (int r = 1; r < ranks; ++r) {
    for (int i = 0; i < n; ++i) next[static_cast<std::size_t>(i)] = value_of<T>(r, i);
    MPI_Reduce_local(next.data(), all.data(), n, type, op);
  }
  return all;
}

template <class T>
void check(const char* name, MPI_Datatype type, MPI_Op op, const char* op_name, MPI_Comm comm, int n) {
  const int rank = rank_in(comm);
  std::vector<T> mine(static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i) mine[static_cast<std::size_t>(i)] = value_of<T>(rank, i);
  const auto due = reference<T>(n, size_of(comm), type, op);
  const auto same = [&](const std::vector<T>& got) {
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
      const auto near = [](T a, T b) { return std::abs(a - b) <= T(0.05) * 2 * T(size_of(MPI_COMM_WORLD)); };
      if (lossy && op == MPI_SUM) return std::equal(got.begin(), got.end(), due.begin(), near);
    }
    return std::equal(got.begin(), got.end(), due.begin());
  };
  const std::string what = std::string(name) + " " + op_name + " of " + std::to_string(n);
  std::vector<T> out(mine.size());
  const std::vector<T> before = mine;
  expect(MPI_Allreduce(mine.data(), out.data(), n, type, op, comm) == MPI_SUCCESS && same(out), what);
  expect(mine == before, what + " changed its input");
  expect(MPI_Allreduce(MPI_IN_PLACE, mine.data(), n, type, op, comm) == MPI_SUCCESS && same(mine), what + " in place");
}

struct named_op {
  MPI_Op op;
  const char* name;
};
const named_op arithmetic[] = {{MPI_SUM, "sum"}, {MPI_PROD, "product"}, {MPI_MIN, "minimum"}, {MPI_MAX, "maximum"}};
const named_op logical[] = {{MPI_LAND, "land"}, {MPI_LOR, "lor"}, {MPI_LXOR, "lxor"},
                            {MPI_BAND, "band"}, {MPI_BOR, "bor"}, {MPI_BXOR, "bxor"}};

template <class T>
void check_number(const char* name, MPI_Datatype type, MPI_Comm comm, int n, std::size_t ops = 4) {
  for (std::size_t o = 0; o < ops; ++o) check<T>(name, type, arithmetic[o].op, arithmetic[o].name, comm, n);
}
template <class T>
void check_integer(const char* name, MPI_Datatype type, MPI_Comm comm, int n) {
  check_number<T>(name, type, comm, n);
  for (const auto& o : logical) check<T>(name, type, o.op, o.name, comm, n);
}

void check_all(MPI_Comm comm, int n) {
  check_integer<signed char>("signed char", MPI_SIGNED_CHAR, comm, n);
  check_integer<unsigned char>("unsigned char", MPI_UNSIGNED_CHAR, comm, n);
  check_integer<short>("short", MPI_SHORT, comm, n);
  check_integer<unsigned short>("unsigned short", MPI_UNSIGNED_SHORT, comm, n);
  check_integer<int>("int", MPI_INT, comm, n);
  check_integer<unsigned>("unsigned", MPI_UNSIGNED, comm, n);
  check_integer<long>("long", MPI_LONG, comm, n);
  check_integer<unsigned long>("unsigned long", MPI_UNSIGNED_LONG, comm, n);
  check_integer<long long>("long long", MPI_LONG_LONG, comm, n);
  check_integer<unsigned long long>("unsigned long long", MPI_UNSIGNED_LONG_LONG, comm, n);
  check_integer<std::int8_t>("int8_t", MPI_INT8_T, comm, n);
  check_integer<std::int16_t>("int16_t", MPI_INT16_T, comm, n);
  check_integer<std::int32_t>("int32_t", MPI_INT32_T, comm, n);
  check_integer<std::int64_t>("int64_t", MPI_INT64_T, comm, n);
  check_integer<std::uint8_t>("uint8_t", MPI_UINT8_T, comm, n);
  check_integer<std::uint16_t>("uint16_t", MPI_UINT16_T, comm, n);
  check_integer<std::uint32_t>("uint32_t", MPI_UINT32_T, comm, n);
  check_integer<std::uint64_t>("uint64_t", MPI_UINT64_T, comm, n);
  check_number<float>("float", MPI_FLOAT, comm, n);
  check_number<double>("double", MPI_DOUBLE, comm, n);
  check_number<long double>("long double", MPI_LONG_DOUBLE, comm, n);
  check_number<std::complex<float>>("complex float", MPI_C_FLOAT_COMPLEX, comm, n, 2);
  check_number<std::complex<double>>("complex double", MPI_C_DOUBLE_COMPLEX, comm, n, 2);
}

void add_twice(void* in, void* inout, int* n, MPI_Datatype*) {
  for (int i = 0; i < *n; ++i) static_cast<int*>(inout)[i] += 2 * static_cast<int*>(in)[i];
}

/// Calls that the library passes on to MPI: not an arithmetic type with a predefined operation.
void check_passed(MPI_Comm comm) {
  const int rank = rank_in(comm), size = size_of(comm);
  struct pair {
    int value, at;
  };
  std::vector<pair> pairs(1000), found(1000);
  for (int i = 0; i < 1000; ++i) pairs[static_cast<std::size_t>(i)] = {(rank + i) % size, rank};
  MPI_Allreduce(pairs.data(), found.data(), 1000, MPI_2INT, MPI_MAXLOC, comm);
  expect(found[0].value == size - 1 && found[0].at == size - 1, "MPI_MAXLOC of pairs");

  MPI_Op mine = MPI_OP_NULL;
  MPI_Op_create(&add_twice, 1, &mine);
  std::vector<int> ones(2000, rank), sum(2000);
  expect(MPI_Allreduce(ones.data(), sum.data(), 2000, MPI_INT, mine, comm) == MPI_SUCCESS, "an operation of the user");
  MPI_Op_free(&mine);

  MPI_Datatype two = MPI_DATATYPE_NULL;
  MPI_Type_contiguous(2, MPI_INT, &two);
  MPI_Type_commit(&two);
  MPI_Op_create(
      +[](void* in, void* inout, int* n, MPI_Datatype*) {
        for (int i = 0; i < 2 * *n; ++i) static_cast<int*>(inout)[i] += static_cast<int*>(in)[i];
      },
      1, &mine);
  MPI_Allreduce(ones.data(), sum.data(), 1000, two, mine, comm);
  expect(sum[1999] == size * (size - 1) / 2, "a derived type");
  MPI_Op_free(&mine);
  MPI_Type_free(&two);

  unsigned char bits[3] = {static_cast<unsigned char>(rank), 1, 0}, all[3];
  MPI_Allreduce(bits, all, 3, MPI_BYTE, MPI_BOR, comm);
  expect(all[1] == 1, "MPI_BYTE");
  expect(MPI_Allreduce(nullptr, nullptr, 0, MPI_INT, MPI_SUM, comm) == MPI_SUCCESS, "no values");
}

int handled = 0;
void handle(MPI_Comm*, int*, ...) { ++handled; }

[[maybe_unused]] void check_errors(MPI_Comm comm) {
  MPI_Comm own = MPI_COMM_NULL;
  MPI_Comm_dup(comm, &own);
  MPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN);
  std::vector<double> x(1000), y(1000);
  const auto class_of = [](int code) {
    int kind = MPI_SUCCESS;
    MPI_Error_class(code, &kind);
    return kind;
  };
  expect(class_of(MPI_Allreduce(x.data(), y.data(), -1, MPI_DOUBLE, MPI_SUM, own)) == MPI_ERR_COUNT,
         "a negative count");
  expect(MPI_Allreduce(x.data(), y.data(), 1000, MPI_DATATYPE_NULL, MPI_SUM, own) != MPI_SUCCESS, "no type");
  expect(class_of(MPI_Allreduce(x.data(), y.data(), 1000, MPI_DOUBLE, MPI_BAND, own)) == MPI_ERR_OP, "bits of doubles");
  MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
  MPI_Comm_create_errhandler(&handle, &handler);
  MPI_Comm_set_errhandler(own, handler);
  MPI_Allreduce(x.data(), y.data(), -1, MPI_DOUBLE, MPI_SUM, own);
  expect(handled == 1, "the handler of the communicator");
  MPI_Errhandler_free(&handler);
  MPI_Comm_free(&own);
}

int copied = 0, deleted = 0;
int count_copy(MPI_Comm, int, void*, void*, void* out, int* flag) {
  ++copied;
  *static_cast<void**>(out) = nullptr;
  *flag = 1;
  return MPI_SUCCESS;
}
int count_delete(MPI_Comm, int, void*, void*) {
  ++deleted;
  return MPI_SUCCESS;
}

/// The program's attributes are copied and deleted as often as the program duplicates and frees its communicators.
void check_attributes(MPI_Comm comm) {
  int key = MPI_KEYVAL_INVALID;
  MPI_Comm_create_keyval(&count_copy, &count_delete, &key, nullptr);
  MPI_Comm own = MPI_COMM_NULL;
  MPI_Comm_dup(comm, &own);
  MPI_Comm_set_attr(own, key, nullptr);
  check<float>("float", MPI_FLOAT, MPI_SUM, "sum", own, 20000);
  expect(copied == 0 && deleted == 0, "attributes are left alone");
  MPI_Comm again = MPI_COMM_NULL;
  MPI_Comm_dup(own, &again);
  check<float>("float", MPI_FLOAT, MPI_SUM, "sum", again, 20000);
  MPI_Comm_free(&again);
  MPI_Comm_free(&own);
  expect(copied == 1 && deleted == 2, "attributes: " + std::to_string(copied) + " " + std::to_string(deleted));
  MPI_Comm_free_keyval(&key);
}

void check_communicators() {
  const int rank = rank_in(MPI_COMM_WORLD), size = size_of(MPI_COMM_WORLD);
  MPI_Comm part = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &part);
  check_all(part, 1000);
  MPI_Comm_free(&part);
  for (int i = 0; i < 100; ++i) { // more than the library takes over at once
    MPI_Comm_split(MPI_COMM_WORLD, i % 3 == 0 && rank == 0 ? MPI_UNDEFINED : 0, rank, &part);
    if (part == MPI_COMM_NULL) continue;
    check<double>("double", MPI_DOUBLE, MPI_SUM, "sum", part, 500);
    MPI_Comm_free(&part);
  }
  std::vector<MPI_Comm> kept(80);
  for (MPI_Comm& c : kept) {
    MPI_Comm_dup(MPI_COMM_WORLD, &c);
    check<int>("int", MPI_INT, MPI_SUM, "sum", c, 500);
  }
  for (MPI_Comm& c : kept) MPI_Comm_free(&c);
  check<int>("int", MPI_INT, MPI_SUM, "sum", MPI_COMM_SELF, 500);
  if (size < 2) return;
  MPI_Comm local = MPI_COMM_NULL, between = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? 0 : 1, rank, &local);
  MPI_Intercomm_create(local, 0, MPI_COMM_WORLD, rank == 0 ? 1 : 0, 7, &between);
  std::vector<int> one(1000, 1), sum(1000);
  MPI_Allreduce(one.data(), sum.data(), 1000, MPI_INT, MPI_SUM, between);
  expect(sum[0] == (rank == 0 ? size - 1 : 1), "an intercommunicator");
  MPI_Comm_free(&between);
  MPI_Comm_free(&local);
}

void check_threads() {
  constexpr int threads = 4;
  std::vector<MPI_Comm> comms(threads);
  for (MPI_Comm& c : comms) MPI_Comm_dup(MPI_COMM_WORLD, &c);
  std::vector<int> wrong(threads);
  std::vector<std::thread> running;
  const int rank = rank_in(MPI_COMM_WORLD), size = size_of(MPI_COMM_WORLD);
  for (int t = 0; t < threads; ++t) {
    running.emplace_back([&, t] {
      const auto at = static_cast<std::size_t>(t);
      std::vector<double> x(5000);
      for (int i = 0; i < 30; ++i) {
        std::fill(x.begin(), x.end(), rank + t + i);
        MPI_Allreduce(MPI_IN_PLACE, x.data(), 5000, MPI_DOUBLE, MPI_SUM, comms[at]);
        const double due = size * (size - 1) / 2.0 + size * (t + i);
        const double off = std::max(std::abs(x.front() - due), std::abs(x.back() - due));
        wrong[at] += static_cast<int>(off > (lossy ? 0.05 * due : 0));
      }
    });
  }
  for (auto& t : running) t.join();
  for (const int w : wrong) expect(w == 0, "from several threads");
  for (MPI_Comm& c : comms) MPI_Comm_free(&c);
}

} // namespace

int main(int argc, char** argv) {
  int provided = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  lossy = argc > 1 && std::strcmp(argv[1], "lossy") == 0;
  if (argc > 2) { // only sums of n, m, ... numbers: floats, among all ranks or those of each host, or integers
    MPI_Comm comm = MPI_COMM_WORLD;
    const std::string_view how = argc > 3 ? argv[3] : "";
    if (how == "each host") MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &comm);
    std::istringstream counts(argv[2]);
    for (std::string n; std::getline(counts, n, ',');) {
      if (how == "integers") {
        check<std::int32_t>("int32_t", MPI_INT32_T, MPI_SUM, "sum", comm, std::stoi(n));
      } else {
        check<float>("float", MPI_FLOAT, MPI_SUM, "sum", comm, std::stoi(n));
      }
    }
    MPI_Finalize();
    return failures == 0 ? 0 : 1;
  }
  for (const int n : {1, 100, 3001}) check_all(MPI_COMM_WORLD, n);
  check<float>("float", MPI_FLOAT, MPI_SUM, "sum", MPI_COMM_WORLD, 300000);
  check_passed(MPI_COMM_WORLD);
#ifndef MPICH_VERSION // Debian's MPICH ends the program
  check_errors(MPI_COMM_WORLD);
#endif
  check_attributes(MPI_COMM_WORLD);
  check_communicators();
  if (provided == MPI_THREAD_MULTIPLE) check_threads();
  int all = 0;
  MPI_Reduce(&failures, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank_in(MPI_COMM_WORLD) == 0) std::printf("%d failures\n", all);
  MPI_Bcast(&all, 1, MPI_INT, 0, MPI_COMM_WORLD);
  MPI_Finalize();
  return all == 0 ? 0 : 1;
}
