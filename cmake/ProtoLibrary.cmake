# retrograd_proto_library(target file.proto): the C++ code of one schema, included by its path from
# the repository root ("graph/proto/graph.pb.h"). Generated code is not held to our warnings.
function(retrograd_proto_library target proto)
  set(generated ${CMAKE_BINARY_DIR}/generated)
  string(REGEX REPLACE "\\.proto$" "" stem ${proto})
  if(NOT EXISTS ${PROJECT_SOURCE_DIR}/${proto})
    add_library(${target} INTERFACE)
    return()
  endif()
  file(MAKE_DIRECTORY ${generated})
  add_custom_command(
    OUTPUT ${generated}/${stem}.pb.cc ${generated}/${stem}.pb.h
    COMMAND protobuf::protoc --cpp_out=${generated} -I ${PROJECT_SOURCE_DIR}
            ${PROJECT_SOURCE_DIR}/${proto}
    DEPENDS ${PROJECT_SOURCE_DIR}/${proto}
    COMMENT "Generating ${stem}.pb.cc")
  add_library(${target} STATIC ${generated}/${stem}.pb.cc ${generated}/${stem}.pb.h)
  target_include_directories(${target} SYSTEM PUBLIC ${generated})
  target_link_libraries(${target} PUBLIC protobuf::libprotobuf)
endfunction()
