// Catch2 of either major version: Debian 12 has 2.13 in one header, Ubuntu 24.04 has 3.x in
// several.
#ifndef RETROGRAD_TESTS_CATCH_H_
#define RETROGRAD_TESTS_CATCH_H_

#include <cstdio>
#include <string>

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;
using Catch::Matchers::ContainsSubstring;
#else
#include <catch2/catch.hpp>
using Catch::Matchers::Contains;
inline auto ContainsSubstring(const std::string& text) { return Contains(text); }
#endif

// Leaves a test case that this machine cannot run. `make test` lists these lines at its end.
#define RG_SKIP(...)                    \
  do {                                  \
    std::printf("[SKIP] " __VA_ARGS__); \
    std::printf("\n");                  \
    SUCCEED("skipped");                 \
    return;                             \
  } while (false)

#endif  // RETROGRAD_TESTS_CATCH_H_
