# Headers of the standard library and of Abseil that most files include, compiled once: reading them
# takes half of a file's time. Each file still includes what it uses, so that it compiles with
# -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON, as `make lint` does.

# A compiler cache takes objects made with a precompiled header under these conditions only: ours
# has no macro that a file sets and no time of day.
if(CCACHE_PROGRAM AND CMAKE_CXX_COMPILER_LAUNCHER STREQUAL CCACHE_PROGRAM)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
endif()

set(precompiled_headers
    <algorithm> <array> <cmath> <cstdint> <functional> <limits> <map> <memory> <numeric> <optional>
    <set> <string> <utility> <vector> "absl/container/flat_hash_map.h"
    "absl/container/flat_hash_set.h" "absl/container/inlined_vector.h" "absl/status/status.h"
    "absl/status/statusor.h" "absl/strings/match.h" "absl/strings/str_cat.h"
    "absl/strings/str_format.h" "absl/strings/str_join.h" "absl/strings/string_view.h"
    "absl/types/span.h")
list(TRANSFORM precompiled_headers REPLACE "^(absl/.*)$" "<\\1>")

# Libraries and programs are compiled with other flags (-fPIC, -fPIE), so each kind has its own.
function(retrograd_precompiled_headers target)
  target_link_libraries(${target} PRIVATE retrograd_options ${absl_base})
  target_precompile_headers(${target} PRIVATE ${precompiled_headers} ${ARGN})
  # Clang stores the headers' times, which differ where a cache gives the file.
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    target_compile_options(${target} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
  endif()
endfunction()

add_library(library_headers STATIC ${PROJECT_SOURCE_DIR}/cmake/empty.cc)
retrograd_precompiled_headers(library_headers)
