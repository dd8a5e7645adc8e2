// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The functions of the C interface for streams.
#include "stream.hpp"

#include <spar/storage/coalesce.hpp>

#include <memory_resource>

using namespace spar;
using namespace spar::c;

extern "C" {

int spar_coalesce(const spar_vector* entries, spar_op op, spar_stream* stream) {
  return guarded(__func__, nullptr, [&] {
    begin_output(stream, "stream");
    check_pointer(entries, "entries");
    const used_operation by = operation_of(op, entries->type);
    *stream = for_types(entries->type, entries->index_bits,
                        [&]<class T, class Index>(std::type_identity<T>, std::type_identity<Index>) {
                          const sparse_arrays<T, Index> given(*entries);
                          return handle_of<T, Index>(nullptr, by,
                                                     coalesce(*std::pmr::new_delete_resource(), given.n, given.indices,
                                                              given.values, detail::chosen_operation{by.what}));
                        });
  });
}

int spar_stream_view(spar_stream stream, spar_vector* view) {
  return guarded(__func__, nullptr, [&] {
    check_pointer(view, "view");
    *view = get<c::stream>(stream, "stream").view();
  });
}

int spar_stream_to_dense(spar_stream stream, void* values, int64_t n) {
  return guarded(__func__, nullptr, [&] { get<c::stream>(stream, "stream").to_dense(values, n); });
}

int spar_stream_free(spar_stream* stream) {
  return guarded(__func__, nullptr, [&] {
    check_pointer(stream, "stream");
    if (*stream != nullptr) take<c::stream>(stream, "stream");
  });
}

} // extern "C"
