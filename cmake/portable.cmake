# Portable programs: they run on any x86-64 Linux with glibc 2.34 and nothing else installed. Libraries are linked
# statically, the C++ library too; libsimdjson, which Debian has shared only, lies in lib/ beside the folder of the program
# (tools/portable/simdjson.sh). Written for `make dist` and for the bundle that goes to machines with a GPU.

# The static archives, where Debian's development packages have them; else nothing here is portable.
set(QGEN_PORTABLE_BUILD ON)
set(portable_archives)
foreach(name pcre2-8 utf8proc edit bsd md tinfo)
  find_library(QGEN_STATIC_${name} lib${name}.a)
  if(NOT QGEN_STATIC_${name})
    message(STATUS "lib${name}.a was not found: no portable programs, so no `make dist`")
    set(QGEN_PORTABLE_BUILD OFF)
  endif()
  list(APPEND portable_archives ${QGEN_STATIC_${name}})
endforeach()
if(QGEN_SANITIZE OR QGEN_FUZZ OR NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(QGEN_PORTABLE_BUILD OFF)
endif()

# What qgen's libraries link: as installed here, or in a target with the property QGEN_PORTABLE the static archives.
set(is_portable "$<BOOL:$<TARGET_PROPERTY:QGEN_PORTABLE>>")
add_library(qgen_core_libraries INTERFACE)
target_link_libraries(qgen_core_libraries INTERFACE
  "$<IF:${is_portable},qgen_portable_parts,fmt::fmt;simdjson::simdjson;PkgConfig::PCRE2;PkgConfig::UTF8PROC>")
# Headers mean the same in both: the size of simdjson's parser depends on its definitions.
target_compile_definitions(qgen_core_libraries INTERFACE
  $<TARGET_PROPERTY:simdjson::simdjson,INTERFACE_COMPILE_DEFINITIONS>)
target_include_directories(qgen_core_libraries SYSTEM INTERFACE
  $<TARGET_PROPERTY:simdjson::simdjson,INTERFACE_INCLUDE_DIRECTORIES>)
add_library(qgen_cli_libraries INTERFACE)
target_link_libraries(qgen_cli_libraries INTERFACE "$<IF:${is_portable},qgen_portable_parts,PkgConfig::LIBEDIT>")

if(QGEN_PORTABLE_BUILD)
  get_target_property(simdjson_here simdjson::simdjson LOCATION)
  set(portable_lib ${CMAKE_BINARY_DIR}/lib)
  add_custom_command(
    OUTPUT ${portable_lib}/libsimdjson.so ${portable_lib}/link.txt
    COMMAND ${CMAKE_SOURCE_DIR}/tools/portable/simdjson.sh ${simdjson_here} ${portable_lib} ${CMAKE_CXX_COMPILER}
    DEPENDS ${CMAKE_SOURCE_DIR}/tools/portable/simdjson.sh ${simdjson_here}
    COMMENT "Bundling libsimdjson" VERBATIM)
  add_custom_target(qgen_portable_lib DEPENDS ${portable_lib}/libsimdjson.so)
  # The archives and what stands in for newer functions of glibc, once for all portable programs.
  add_library(qgen_portable_parts STATIC EXCLUDE_FROM_ALL tools/portable/fmt.cpp tools/portable/glibc.cpp)
  target_link_libraries(qgen_portable_parts INTERFACE ${portable_lib}/libsimdjson.so ${portable_archives})
  add_dependencies(qgen_portable_parts qgen_portable_lib)
endif()

# Makes a program portable. It must lie in a folder beside lib/.
function(qgen_portable name)
  if(NOT QGEN_PORTABLE_BUILD)
    return()
  endif()
  set_target_properties(${name} PROPERTIES QGEN_PORTABLE ON BUILD_RPATH_USE_ORIGIN ON BUILD_RPATH "$ORIGIN/../lib")
  target_link_options(${name} PRIVATE @${portable_lib}/link.txt -static-libstdc++ -static-libgcc
                      "LINKER:-u,_dl_find_object,-u,arc4random,-u,qgen_unwind_resume"
                      LINKER:--disable-new-dtags)
  add_dependencies(${name} qgen_portable_lib)
endfunction()
