# Headers of the standard library and of Abseil that most files include, compiled once: reading them
# takes half of a file's time. Each file still includes what it uses, so that it compiles with
# -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON, as `make lint` does.

# A compiler cache takes objects made with a precompiled header under these conditions only: ours
# has no macro that a file sets and no time of day, and a checksum of what it includes stands beside
# it, since compilers don't make the same file twice.
if(CCACHE_PROGRAM AND CMAKE_CXX_COMPILER_LAUNCHER STREQUAL CCACHE_PROGRAM)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_PCH_EXTSUM=1 ${CCACHE_PROGRAM})
endif()

# GCC takes moves of short strings for overruns and keeps that to itself, since they stand in headers
# of the system; of headers that were compiled beforehand it does not.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT CMAKE_DISABLE_PRECOMPILE_HEADERS)
  target_compile_options(retrograd_options INTERFACE -Wno-array-bounds -Wno-restrict
                         -Wno-stringop-overflow -Wno-stringop-overread)
endif()

set(precompiled_headers
    <algorithm> <array> <cmath> <cstdint> <functional> <limits> <map> <memory> <numeric> <optional>
    <set> <string> <utility> <vector> <absl/container/flat_hash_map.h>
    <absl/container/flat_hash_set.h> <absl/container/inlined_vector.h> <absl/status/status.h>
    <absl/status/statusor.h> <absl/strings/match.h> <absl/strings/str_cat.h>
    <absl/strings/str_format.h> <absl/strings/str_join.h> <absl/strings/string_view.h>
    <absl/types/span.h>)

# The checksum of all that the headers include, found out when the build is configured.
function(retrograd_write_checksum target)
  set(folder ${CMAKE_BINARY_DIR}/CMakeFiles/${target}.dir)
  list(TRANSFORM ARGN REPLACE "^([^<].*)$" "\"\\1\"" OUTPUT_VARIABLE headers)
  list(TRANSFORM headers PREPEND "#include ")
  list(JOIN headers "\n" text)
  file(WRITE ${folder}/checked.cc "${text}\n")
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -std=c++20 -E -P ${folder}/checked.cc
                  OUTPUT_VARIABLE included COMMAND_ERROR_IS_FATAL ANY)
  string(SHA256 checksum "${CMAKE_CXX_COMPILER_VERSION} ${included}")
  foreach(ending gch pch)
    file(WRITE ${folder}/cmake_pch.hxx.${ending}.sum ${checksum})
  endforeach()
  # Again with another compiler or other versions of the libraries.
  list(FILTER ARGN EXCLUDE REGEX "^<")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_CXX_COMPILER}
               ${absl_DIR}/abslConfigVersion.cmake ${ARGN})
endfunction()

# Libraries and programs are compiled with other flags (-fPIC, -fPIE), so each kind has its own.
function(retrograd_precompiled_headers target)
  target_link_libraries(${target} PRIVATE retrograd_options ${absl_base})
  target_precompile_headers(${target} PRIVATE ${precompiled_headers} ${ARGN})
  # Clang stores the headers' times, which differ where a cache gives the file.
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    target_compile_options(${target} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
  endif()
  retrograd_write_checksum(${target} ${precompiled_headers} ${ARGN})
endfunction()

add_library(library_headers STATIC ${PROJECT_SOURCE_DIR}/cmake/empty.cc)
retrograd_precompiled_headers(library_headers)
