# The engine for GPUs. Its device code is compiled by nvcc as plain commands: no second language to configure, and what
# ptxas says of each kernel stays in cuda/NAME.log, which a test reads. Targets, where there is nvcc: qgen_gpu, the engine's
# objects, and qgen_gpu_timed, the same with kernels that stamp when they begin and end.

# What of its host side knows no CUDA; the tests build it for an executor as well.
set(gpu_host_sources)
foreach(name batch_fusion call_inputs cuda_backend experts_dispatch fused_steps kernel_log kv_cache linear_dispatch matrix measure passed_norms
        shortlist weight_store workspace)
  list(APPEND gpu_host_sources ${CMAKE_SOURCE_DIR}/kernels/${name}.cpp)
endforeach()

find_program(QGEN_NVCC nvcc HINTS /usr/local/cuda/bin)
set(QGEN_CUDA_ARCHITECTURES "" CACHE STRING
    "Compute capabilities as numbers, 90 for 9.0; release: all of a release; empty: that of the GPU here, without one two")
option(QGEN_CUDA_TIMESTAMPS "Build qgen_gpu_probe, whose kernels stamp when they begin and end on the device" ON)
set(release_architectures 80 86 89 90 100 120)
# Where nothing can run: the first one, and the first whose kernels start before the one before them has ended.
set(compiled_architectures 80 90)

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
if(NOT QGEN_NVCC OR QGEN_SANITIZE OR QGEN_FUZZ)
  set(QGEN_NVCC "")
  set(QGEN_CUDA OFF)
  return()
endif()

get_filename_component(cuda_root ${QGEN_NVCC} REALPATH)
get_filename_component(cuda_root ${cuda_root} DIRECTORY)
get_filename_component(cuda_root ${cuda_root} DIRECTORY)

set(architectures ${QGEN_CUDA_ARCHITECTURES})
if(architectures STREQUAL "release")
  set(architectures ${release_architectures})
elseif(NOT architectures AND NOT no_gpu STREQUAL "0")
  set(architectures ${compiled_architectures})
endif()
set(timed_architectures ${architectures})
if(NOT QGEN_CUDA_ARCHITECTURES AND architectures)
  list(GET architectures -1 timed_architectures)
endif()

# Compiles kernels/device/*.cu with `flags` for `architectures` (empty: the GPU here) into FOLDER/NAME.o; their list
# becomes `objects`.
file(GLOB cuda_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/device/*.cu)
function(qgen_device_code objects folder architectures flags)
  list(APPEND flags -std=c++20 -O3 --expt-relaxed-constexpr -Xptxas=-v,-warn-spills,-warn-lmem-usage
       --Werror=all-warnings --compress-mode=size -Xcompiler=-Wall,-Wextra -I${CMAKE_SOURCE_DIR} -I${CMAKE_SOURCE_DIR}/src)
  if(architectures)
    foreach(number ${architectures})
      list(APPEND flags -gencode=arch=compute_${number},code=sm_${number})
    endforeach()
    # For GPUs between them, and those that are to come.
    list(SORT architectures COMPARE NATURAL)
    list(GET architectures -1 latest)
    foreach(number 90 ${latest})
      if(number IN_LIST architectures)
        list(APPEND flags -gencode=arch=compute_${number},code=compute_${number})
      endif()
    endforeach()
    list(REMOVE_DUPLICATES flags)
  else()
    list(APPEND flags -arch=native)
  endif()
  file(MAKE_DIRECTORY ${folder})
  set(made)
  foreach(source ${cuda_sources})
    get_filename_component(name ${source} NAME_WE)
    set(object ${folder}/${name}.o)
    add_custom_command(
      OUTPUT ${object}
      COMMAND ${CMAKE_SOURCE_DIR}/tools/nvcc_logged.sh ${folder}/${name}.log ${QGEN_NVCC} ${flags} -MD -MF ${object}.d -c
              ${source} -o ${object}
      DEPENDS ${source} ${CMAKE_SOURCE_DIR}/tools/nvcc_logged.sh
      DEPFILE ${object}.d
      COMMENT "Building device code ${name}"
      VERBATIM)
    list(APPEND made ${object})
  endforeach()
  set_source_files_properties(${made} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  set(${objects} ${made} PARENT_SCOPE)
endfunction()

# What of the host side does not see LaunchTimes is compiled once.
set(common_sources ${gpu_host_sources} ${CMAKE_SOURCE_DIR}/kernels/engine_row.cpp ${CMAKE_SOURCE_DIR}/kernels/library_gemm.cpp)
set(timed_sources ${CMAKE_SOURCE_DIR}/kernels/kernel_log.cpp ${CMAKE_SOURCE_DIR}/kernels/runtime.cpp)
list(REMOVE_ITEM common_sources ${timed_sources})
function(qgen_gpu_objects name)
  add_library(${name} OBJECT EXCLUDE_FROM_ALL ${ARGN})
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR})
  target_include_directories(${name} SYSTEM PRIVATE ${cuda_root}/include)
  target_link_libraries(${name} PUBLIC qgen_core)
  if(QGEN_PCH)
    target_precompile_headers(${name} REUSE_FROM qgen_core)
  endif()
endfunction()
qgen_gpu_objects(qgen_gpu_common ${common_sources})

# The engine with this device code: an object library, whose function gpu_engine() goes before that of qgen_core.
function(qgen_gpu_library name objects)
  qgen_gpu_objects(${name} ${timed_sources} ${objects})
  add_dependencies(${name} qgen_gpu_common)
  target_link_libraries(${name} INTERFACE $<TARGET_OBJECTS:qgen_gpu_common> ${objects} ${cuda_root}/lib64/libcudart_static.a
                        ${CMAKE_DL_LIBS} rt)
endfunction()

qgen_device_code(cuda_objects ${CMAKE_BINARY_DIR}/cuda "${architectures}" "")
qgen_gpu_library(qgen_gpu "${cuda_objects}")
if(QGEN_CUDA_TIMESTAMPS)
  qgen_device_code(timed_objects ${CMAKE_BINARY_DIR}/cuda/timed "${timed_architectures}" -DQGEN_CUDA_TIMESTAMPS)
  qgen_gpu_library(qgen_gpu_timed "${timed_objects}")
  target_compile_definitions(qgen_gpu_timed PUBLIC QGEN_CUDA_TIMESTAMPS)
endif()
