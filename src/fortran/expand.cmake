# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Writes the Fortran module spar to OUTPUT. It has the procedures of values.f90.in for each type of values, those of
# real_values.f90.in for the real ones, those of indices.f90.in for each type of indices, and those of entries.f90.in
# for each pair.

set(types "r4,real(real32),type_float" "r8,real(real64),type_double" "i4,integer(int32),type_int32"
          "i8,integer(int64),type_int64")
set(index_types "i4,integer(int32),32" "i8,integer(int64),64")

foreach(part IN ITEMS module values real_values entries indices)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/${part}.f90.in")
  file(READ "${CMAKE_CURRENT_LIST_DIR}/${part}.f90.in" ${part})
endforeach()

set(procedures "")
foreach(fields IN LISTS types)
  string(REGEX MATCH "^(.*),(.*),(.*)$" fields "${fields}")
  set(kind "${CMAKE_MATCH_1}")
  set(type "${CMAKE_MATCH_2}")
  set(code "${CMAKE_MATCH_3}")
  string(CONFIGURE "${values}" procedure @ONLY)
  string(APPEND procedures "${procedure}")
  if(type MATCHES "^real")
    string(CONFIGURE "${real_values}" procedure @ONLY)
    string(APPEND procedures "${procedure}")
  endif()
  foreach(fields IN LISTS index_types)
    string(REGEX MATCH "^(.*),(.*),(.*)$" fields "${fields}")
    set(index_kind "${CMAKE_MATCH_1}")
    set(index_type "${CMAKE_MATCH_2}")
    set(index_bits "${CMAKE_MATCH_3}")
    string(CONFIGURE "${entries}" procedure @ONLY)
    string(APPEND procedures "${procedure}")
    if(kind STREQUAL "r4")
      string(CONFIGURE "${indices}" procedure @ONLY)
      string(APPEND procedures "${procedure}")
    endif()
  endforeach()
endforeach()
string(CONFIGURE "${module}" text @ONLY)
file(WRITE "${OUTPUT}" "${text}")
