# graph_fuzzer: clang's libFuzzer over loading, verifying, planning and printing. Builds only the
# layers up to fusion. RETROGRAD_FUZZ puts coverage counters into all our code.
if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "RETROGRAD_FUZZ needs clang, whose libFuzzer it uses; this is "
                      "${CMAKE_CXX_COMPILER_ID}. Configure with the preset fuzz.")
endif()
file(GLOB mutation_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/support/graphs/mutation/*.cc)
add_executable(graph_fuzzer tests/fuzz/graph_fuzzer.cc tests/support/graphs/fuzz_input.cc
               ${mutation_sources})
target_link_libraries(graph_fuzzer PRIVATE retrograd_fusion retrograd_graph_proto)
target_link_options(graph_fuzzer PRIVATE -fsanitize=fuzzer)

# The planner as clang builds it: determinism_test compares its plans with those of the other build.
add_executable(plan_digest tests/fusion/plan_digest.cc)
target_link_libraries(plan_digest PRIVATE retrograd_fusion)
# Its code has the counters, too; the runtime takes what they call.
target_link_options(plan_digest PRIVATE -fsanitize=undefined)
