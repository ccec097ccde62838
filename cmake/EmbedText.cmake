# retrograd_embed_text(target name file..): the files' text, one after the other and without their
# #include "..." lines, as the initializer of a string literal in generated/<name>, for target to
# #include. Run as a script (cmake -P) it writes that file.
if(CMAKE_SCRIPT_MODE_FILE)
  set(text "")
  foreach(file ${FILES})
    file(READ ${file} content)
    string(REGEX REPLACE "#include \"[^\n]*\n" "" content "${content}")
    string(APPEND text "R\"rg(${content})rg\"\n")
  endforeach()
  file(WRITE ${OUTPUT} "${text}")
  return()
endif()

function(retrograd_embed_text target name)
  set(output ${CMAKE_BINARY_DIR}/generated/${name})
  get_filename_component(folder ${output} DIRECTORY)
  file(MAKE_DIRECTORY ${folder})
  list(TRANSFORM ARGN PREPEND ${PROJECT_SOURCE_DIR}/ OUTPUT_VARIABLE files)
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} "-DFILES=${files}" -DOUTPUT=${output}
            -P ${PROJECT_SOURCE_DIR}/cmake/EmbedText.cmake
    DEPENDS ${files} ${PROJECT_SOURCE_DIR}/cmake/EmbedText.cmake
    COMMENT "Embedding ${name}" VERBATIM)
  target_sources(${target} PRIVATE ${output})
  target_include_directories(${target} PRIVATE ${CMAKE_BINARY_DIR}/generated)
endfunction()
