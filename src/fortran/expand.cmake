# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Writes the Fortran module spar to OUTPUT. It has the procedures of values.f90.in for each type of values, those of
# real_values.f90.in for the real ones, those of indices.f90.in for each type of indices, and those of entries.f90.in
# for each pair.

set(kinds r4 r8 i4 i8)
set(types "real(real32)" "real(real64)" "integer(int32)" "integer(int64)")
set(codes type_float type_double type_int32 type_int64)
set(index_kinds i4 i8)
set(index_types "integer(int32)" "integer(int64)")
set(all_index_bits 32 64)

foreach(part IN ITEMS module values real_values entries indices)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/${part}.f90.in")
  file(READ "${CMAKE_CURRENT_LIST_DIR}/${part}.f90.in" ${part})
endforeach()

set(procedures "")
macro(append_procedures part)
  string(CONFIGURE "${${part}}" expanded @ONLY)
  string(APPEND procedures "${expanded}")
endmacro()
foreach(kind type code IN ZIP_LISTS kinds types codes)
  append_procedures(values)
  if(type MATCHES "^real")
    append_procedures(real_values)
  endif()
  foreach(index_kind index_type index_bits IN ZIP_LISTS index_kinds index_types all_index_bits)
    append_procedures(entries)
    if(kind STREQUAL "r4")
      append_procedures(indices)
    endif()
  endforeach()
endforeach()
string(CONFIGURE "${module}" text @ONLY)
file(WRITE "${OUTPUT}" "${text}")
