# libretrograd: the C interface over everything, as a shared library that exports rg_* alone, and how
# it is installed and packed. The libraries that it needs may lie beside bin/ in lib/.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

retrograd_layer(retrograd_api FOLDERS api LINK retrograd_tools nlohmann_json::nlohmann_json)
target_include_directories(retrograd_api PUBLIC ${PROJECT_SOURCE_DIR}/include)
set_property(SOURCE api/guard.cc APPEND PROPERTY COMPILE_DEFINITIONS
             RETROGRAD_VERSION="${PROJECT_VERSION}")

# Of the same objects as the layer, which tests link.
add_library(retrograd_shared SHARED cmake/empty.cc)
add_library(Retrograd::retrograd ALIAS retrograd_shared)
target_link_libraries(retrograd_shared PRIVATE -Wl,--whole-archive retrograd_api -Wl,--no-whole-archive)
target_include_directories(retrograd_shared INTERFACE
                           $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                           $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(retrograd_shared INTERFACE cxx_std_20)  # of C++ consumers
set(exported_symbols ${PROJECT_SOURCE_DIR}/cmake/exported_symbols.map)
set_target_properties(retrograd_shared PROPERTIES
                      OUTPUT_NAME retrograd EXPORT_NAME retrograd
                      VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
                      LIBRARY_OUTPUT_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}
                      BUILD_RPATH "$ORIGIN/../lib"
                      LINK_DEPENDS ${exported_symbols})
target_link_options(retrograd_shared PRIVATE -Wl,-Bsymbolic -Wl,--disable-new-dtags
                    -Wl,--version-script=${exported_symbols})

# The same as one archive, of every layer. Its users link what the layers link:
# RetrogradStatic.cmake and the pkg-config file name it.
set(layers retrograd_api retrograd_tools retrograd_models retrograd_runtime retrograd_codegen
    retrograd_fusion retrograd_kernel retrograd_graph retrograd_graph_proto retrograd_kernel_proto
    retrograd_runtime_proto)
set(archive ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/libretrograd.a)
set(archiving ${CMAKE_BINARY_DIR}/libretrograd.mri)
list(TRANSFORM layers REPLACE "(.+)" "ADDLIB $<TARGET_FILE:\\1>\n" OUTPUT_VARIABLE adding)
list(JOIN adding "" adding)
file(GENERATE OUTPUT ${archiving} CONTENT "CREATE ${archive}\n${adding}SAVE\nEND\n")
add_custom_command(OUTPUT ${archive} COMMAND sh -c "'${CMAKE_AR}' -M <'${archiving}'"
                   DEPENDS ${layers} ${archiving} COMMENT "Archiving libretrograd.a" VERBATIM)
add_custom_target(retrograd_static ALL DEPENDS ${archive})
set(retrograd_static_links protobuf::libprotobuf ${absl_base} Boost::context Threads::Threads
    openblas xxhash ${CMAKE_DL_LIBS})

# `cmake --install BUILD --prefix P --component retrograd`
set(retrograd_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Retrograd)
install(TARGETS retrograd_shared EXPORT RetrogradTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT retrograd
        NAMELINK_COMPONENT retrograd)
install(FILES ${archive} DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT retrograd)
install(TARGETS retrograd fusion-explain
        RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT retrograd)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/retrograd
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT retrograd)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/fusion/devices
        DESTINATION ${CMAKE_INSTALL_DATADIR}/retrograd/fusion COMPONENT retrograd
        FILES_MATCHING PATTERN "*.textproto")
install(DIRECTORY ${PROJECT_SOURCE_DIR}/python/retrograd
        DESTINATION lib/python3/dist-packages COMPONENT retrograd
        FILES_MATCHING PATTERN "*.py" PATTERN "*.h" PATTERN "*.cc" PATTERN "graph.descriptor" PATTERN "__pycache__" EXCLUDE)
install(EXPORT RetrogradTargets NAMESPACE Retrograd:: DESTINATION ${retrograd_cmake_dir}
        COMPONENT retrograd)
configure_package_config_file(cmake/RetrogradConfig.cmake.in RetrogradConfig.cmake
                              INSTALL_DESTINATION ${retrograd_cmake_dir})
configure_package_config_file(cmake/RetrogradStatic.cmake.in RetrogradStatic.cmake
                              INSTALL_DESTINATION ${retrograd_cmake_dir})
write_basic_package_version_file(RetrogradConfigVersion.cmake COMPATIBILITY SameMinorVersion)
list(TRANSFORM absl_base REPLACE "::" "_" OUTPUT_VARIABLE retrograd_static_pc)
list(JOIN retrograd_static_pc " " retrograd_static_pc)
configure_file(cmake/retrograd.pc.in retrograd.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/RetrogradConfig.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/RetrogradConfigVersion.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/RetrogradStatic.cmake
        DESTINATION ${retrograd_cmake_dir} COMPONENT retrograd)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/retrograd.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT retrograd)

# What a Python wheel holds besides Python, beside each other.
install(FILES $<TARGET_FILE:retrograd_shared> DESTINATION . RENAME libretrograd.so
        COMPONENT wheel EXCLUDE_FROM_ALL)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/fusion/devices DESTINATION share/retrograd/fusion
        COMPONENT wheel EXCLUDE_FROM_ALL FILES_MATCHING PATTERN "*.textproto")

# `cpack -G DEB --config BUILD/CPackConfig.cmake`
set(CPACK_PACKAGE_NAME retrograd)
set(CPACK_PACKAGE_CONTACT "Retrograd developers <retrograd@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Plans, compiles and runs the backward pass of model training")
set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "g++")  # compiles the kernels of the host device
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_COMPONENTS_ALL retrograd)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_STRIP_FILES ON)
include(CPack)
