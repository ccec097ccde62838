# One executable and one CTest test per tests/**/*_test.cc, labelled with the layers that it needs.
find_package(Catch2 CONFIG REQUIRED)  # 2.13 (Debian 12) or 3.x (Ubuntu 24.04), see tests/catch.h

file(GLOB_RECURSE support_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/support/*.cc)
foreach(source ${support_sources})
  get_filename_component(stem ${source} NAME_WE)
  add_library(support_${stem} STATIC ${source})
  target_precompile_headers(support_${stem} REUSE_FROM library_headers)
  target_link_libraries(support_${stem} PUBLIC retrograd_options retrograd_graph)
endforeach()
foreach(source ${support_sources})
  get_filename_component(stem ${source} NAME_WE)
  set(files ${source})
  string(REGEX REPLACE "\\.cc$" ".h" header ${source})
  if(EXISTS ${header})
    list(APPEND files ${header})
  endif()
  retrograd_link_by_includes(support_${stem} ${files})
endforeach()

# Tests wait for what they test: less time for the compiler is less time for both.
set(test_options $<$<CONFIG:Release>:-O1>)
add_executable(test_headers ${PROJECT_SOURCE_DIR}/cmake/empty.cc)
target_compile_options(test_headers PRIVATE ${test_options})
retrograd_precompiled_headers(test_headers ${PROJECT_SOURCE_DIR}/tests/catch.h)
target_link_libraries(test_headers PRIVATE Catch2::Catch2WithMain)

file(GLOB_RECURSE test_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/*_test.cc)
foreach(source ${test_sources})
  get_filename_component(test ${source} NAME_WE)
  add_executable(${test} ${source})
  set_target_properties(${test} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_compile_options(${test} PRIVATE ${test_options})
  target_precompile_headers(${test} REUSE_FROM test_headers)
  # The JSON library is header-only; tests read the tools' output with it.
  target_link_libraries(${test} PRIVATE retrograd_options nlohmann_json::nlohmann_json)
  retrograd_link_by_includes(${test} ${source})
  target_link_libraries(${test} PUBLIC Catch2::Catch2WithMain)
  # Tests run the binaries and find the repository's files by these two. Only those that name them:
  # a compiler cache knows the others wherever the tree lies.
  foreach(folder BIN SOURCE)
    file(STRINGS ${source} named REGEX "RETROGRAD_${folder}_DIR" LIMIT_COUNT 1)
    if(named AND folder STREQUAL BIN)
      target_compile_definitions(${test} PRIVATE
                                 RETROGRAD_BIN_DIR="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
      add_dependencies(${test} retrograd fusion-explain)
    elseif(named)
      target_compile_definitions(${test} PRIVATE RETROGRAD_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
    endif()
  endforeach()
  add_test(NAME ${test} COMMAND ${test} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${test} PROPERTIES TIMEOUT 900 ENVIRONMENT "OPENBLAS_NUM_THREADS=1")
endforeach()

# Drivers, run-time compilers and libraries for matmuls for machines without a GPU. Tests load them
# by their paths.
file(GLOB fake_gpu_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/fake_gpu/*.cc)
set(fake_gpus fake_hip)
set(fake_gpu_users support_fake_gpu device_conformance_test tools_test)
if(CUDA_INCLUDE_DIR)
  list(APPEND fake_gpus fake_cuda)
endif()
foreach(fake ${fake_gpus})
  add_library(${fake} SHARED ${fake_gpu_sources})
  set_target_properties(${fake} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_link_libraries(${fake} PRIVATE retrograd_runtime)
  # Its copy of our code is its own.
  target_link_options(${fake} PRIVATE -Wl,--exclude-libs,ALL -Wl,-Bsymbolic)
  string(TOUPPER ${fake} name)
  target_compile_definitions(${fake} PRIVATE RETROGRAD_${name}_LIBRARY)
  foreach(user ${fake_gpu_users})
    add_dependencies(${user} ${fake})
    target_compile_definitions(
      ${user} PUBLIC RETROGRAD_${name}="${CMAKE_BINARY_DIR}/tests/lib${fake}.so")
  endforeach()
endforeach()

# The nodes of graphs are shown with the vendor's own types.
if(CUDA_INCLUDE_DIR)
  target_include_directories(fake_cuda SYSTEM PRIVATE ${CUDA_INCLUDE_DIR})
endif()

# What determinism_test runs in many processes.
add_executable(plan_digest tests/fusion/plan_digest.cc)
set_target_properties(plan_digest PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
target_link_libraries(plan_digest PRIVATE retrograd_fusion)
add_dependencies(determinism_test plan_digest)
target_compile_definitions(determinism_test
                           PRIVATE RETROGRAD_TEST_DIR="${CMAKE_BINARY_DIR}/tests")

# What `make soak` runs for hours: random graphs on a device against the reference.
add_executable(soak_graphs tests/soak/soak_graphs.cc)
set_target_properties(soak_graphs PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
target_link_libraries(soak_graphs PRIVATE retrograd_options nlohmann_json::nlohmann_json)
retrograd_link_by_includes(soak_graphs ${PROJECT_SOURCE_DIR}/tests/soak/soak_graphs.cc)

# The reference evaluator as a program, for the tests of the exporter.
add_executable(reference_outputs tests/graph/reference_outputs.cc)
set_target_properties(reference_outputs
                      PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
target_link_libraries(reference_outputs PRIVATE retrograd_options retrograd_graph)
