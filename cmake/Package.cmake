# libretrograd: the C interface over everything, as a shared library that exports rg_* alone. The
# libraries that it needs may lie beside bin/ in lib/.
file(GLOB api_sources CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/api/*.cc)
retrograd_layer(retrograd_api FOLDERS api
                LINK retrograd_tools nlohmann_json::nlohmann_json)
set_property(SOURCE api/guard.cc APPEND PROPERTY COMPILE_DEFINITIONS
             RETROGRAD_VERSION="${PROJECT_VERSION}")

add_library(retrograd_shared SHARED ${api_sources})
target_link_libraries(retrograd_shared PRIVATE retrograd_tools nlohmann_json::nlohmann_json)
set_target_properties(retrograd_shared PROPERTIES
                      OUTPUT_NAME retrograd
                      VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
                      LIBRARY_OUTPUT_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}
                      CXX_VISIBILITY_PRESET hidden
                      BUILD_RPATH "$ORIGIN/../lib")
target_link_options(retrograd_shared PRIVATE -Wl,--exclude-libs,ALL -Wl,-Bsymbolic
                    -Wl,--disable-new-dtags
                    -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/exported_symbols.map)
set_property(TARGET retrograd_shared APPEND PROPERTY
             LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/exported_symbols.map)
