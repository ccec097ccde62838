// Catch2 of either major version: Debian 12 has 2.13 in one header, Ubuntu 24.04 has 3.x in
// several.
#ifndef RETROGRAD_TESTS_CATCH_H_
#define RETROGRAD_TESTS_CATCH_H_

#include <cstdio>
#include <cstdlib>
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

// Leaves a test case where a vendor's run-time compiler is missing, by the status that says so;
// where RETROGRAD_COMPILERS=required, as in continuous integration, the case fails.
#define RG_NEEDS_COMPILER(STATUS)                                             \
  do {                                                                        \
    const auto rg_status = (STATUS);                                          \
    if (rg_status.ok()) break;                                                \
    const char* rg_compilers = std::getenv("RETROGRAD_COMPILERS");            \
    if (rg_compilers != nullptr && rg_compilers == std::string("required")) { \
      FAIL(rg_status.ToString());                                             \
    }                                                                         \
    RG_SKIP("%s", rg_status.ToString().c_str());                              \
  } while (false)

#endif  // RETROGRAD_TESTS_CATCH_H_
