# The engine for GPUs. Its device code is compiled by nvcc as plain commands: no second language to configure, and what
# ptxas says of each kernel stays in cuda/NAME.log, which a test reads.

# What of its host side knows no CUDA; the tests build it for an executor as well.
set(gpu_host_sources)
foreach(name engine layer_runner matrix weight_store)
  list(APPEND gpu_host_sources ${CMAKE_SOURCE_DIR}/kernels/${name}.cpp)
endforeach()

find_program(QGEN_NVCC nvcc HINTS /usr/local/cuda/bin)
set(QGEN_CUDA_ARCHITECTURES "" CACHE STRING
    "Compute capabilities as numbers, 90 for 9.0; release: all of a release; empty: that of the GPU here, without one all")
set(release_architectures 80 86 89 90 100 120)

set(nvcc_version 0)
if(QGEN_NVCC)
  execute_process(COMMAND ${QGEN_NVCC} --version OUTPUT_VARIABLE nvcc_says)
  if(nvcc_says MATCHES "release ([0-9]+)")
    set(nvcc_version ${CMAKE_MATCH_1})
  endif()
  if(nvcc_version LESS 13)
    if(QGEN_CUDA AND NOT QGEN_CUDA STREQUAL "AUTO")
      message(FATAL_ERROR "${QGEN_NVCC} is of CUDA ${nvcc_version} (expected 13 or later)")
    endif()
    message(STATUS "${QGEN_NVCC} is of CUDA ${nvcc_version} (13 or later is wanted): no engine for GPUs")
    set(QGEN_NVCC "")
  endif()
endif()

execute_process(COMMAND nvidia-smi -L RESULT_VARIABLE no_gpu OUTPUT_QUIET ERROR_QUIET)
if(QGEN_CUDA STREQUAL "AUTO")
  set(QGEN_CUDA OFF)
  if(QGEN_NVCC AND no_gpu STREQUAL "0")
    set(QGEN_CUDA ON)
  endif()
elseif(QGEN_CUDA AND NOT QGEN_NVCC)
  message(FATAL_ERROR "QGEN_CUDA is ON and nvcc was not found: install the CUDA Toolkit, or put nvcc on the path")
endif()
if(NOT QGEN_NVCC)
  return()
endif()

get_filename_component(cuda_root ${QGEN_NVCC} REALPATH)
get_filename_component(cuda_root ${cuda_root} DIRECTORY)
get_filename_component(cuda_root ${cuda_root} DIRECTORY)

set(architectures ${QGEN_CUDA_ARCHITECTURES})
if(architectures STREQUAL "release" OR (NOT architectures AND NOT no_gpu STREQUAL "0"))
  set(architectures ${release_architectures})
endif()
set(nvcc_flags -std=c++20 -O3 --expt-relaxed-constexpr -Xptxas=-v,-warn-spills,-warn-lmem-usage
               --Werror=all-warnings --compress-mode=size -Xcompiler=-Wall,-Wextra -I${CMAKE_SOURCE_DIR} -I${CMAKE_SOURCE_DIR}/src)
if(architectures)
  foreach(number ${architectures})
    list(APPEND nvcc_flags -gencode=arch=compute_${number},code=sm_${number})
  endforeach()
  # For GPUs between them, and those that are to come.
  list(SORT architectures COMPARE NATURAL)
  list(GET architectures -1 latest)
  foreach(number 90 ${latest})
    if(number IN_LIST architectures)
      list(APPEND nvcc_flags -gencode=arch=compute_${number},code=compute_${number})
    endif()
  endforeach()
else()
  list(APPEND nvcc_flags -arch=native)
endif()

file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/cuda)
file(GLOB cuda_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/device/*.cu)
set(cuda_objects)
foreach(source ${cuda_sources})
  get_filename_component(name ${source} NAME_WE)
  set(object ${CMAKE_BINARY_DIR}/cuda/${name}.o)
  add_custom_command(
    OUTPUT ${object}
    COMMAND ${CMAKE_SOURCE_DIR}/tools/nvcc_logged.sh ${CMAKE_BINARY_DIR}/cuda/${name}.log ${QGEN_NVCC} ${nvcc_flags} -MD -MF
            ${object}.d -c ${source} -o ${object}
    DEPENDS ${source} ${CMAKE_SOURCE_DIR}/tools/nvcc_logged.sh
    DEPFILE ${object}.d
    COMMENT "Building device code ${name}"
    VERBATIM)
  list(APPEND cuda_objects ${object})
endforeach()

# An object library: its function gpu_engine() goes before that of qgen_core.
add_library(qgen_gpu OBJECT EXCLUDE_FROM_ALL ${gpu_host_sources} ${CMAKE_SOURCE_DIR}/kernels/engine_row.cpp
            ${CMAKE_SOURCE_DIR}/kernels/gemm.cpp
            ${CMAKE_SOURCE_DIR}/kernels/runtime.cpp ${cuda_objects})
set_source_files_properties(${cuda_objects} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
target_include_directories(qgen_gpu PRIVATE ${CMAKE_SOURCE_DIR})
target_include_directories(qgen_gpu SYSTEM PRIVATE ${cuda_root}/include)
target_link_libraries(qgen_gpu PUBLIC qgen_core INTERFACE ${cuda_objects} ${cuda_root}/lib64/libcudart_static.a
                      ${CMAKE_DL_LIBS} rt)
