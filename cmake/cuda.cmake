# CUDA, optional: dlc::cuda (compiler, headers, the runtime as a static library), and the
# headers of the libraries that plugins open at run time: dlc::cudnn (with cuBLASLt) and
# dlc::nccl. Nothing links the driver, so everything builds, loads and is tested without a
# GPU.

option(DLC_CUDA "Build the CUDA plugins where the toolkit is found" ON)
if(NOT DLC_CUDA)
  return()
endif()

# Code for every major architecture that this nvcc knows, plus PTX for later ones. Test
# builds never run it, so one architecture is enough. CUDAARCHS is CMake's environment
# variable.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
  if(DLC_SANITIZE OR NOT CMAKE_BUILD_TYPE STREQUAL "Release")
    set(CMAKE_CUDA_ARCHITECTURES 90-virtual)
  else()
    set(CMAKE_CUDA_ARCHITECTURES all-major)
  endif()
endif()
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)

# An earlier configuration may have found no compiler; look again, as one may have been
# installed since.
if(NOT CMAKE_CUDA_COMPILER)
  unset(CMAKE_CUDA_COMPILER CACHE)
endif()
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  return()
endif()
enable_language(CUDA)
find_package(CUDAToolkit 12.8 QUIET)
if(NOT TARGET CUDA::cudart_static)
  message(STATUS "CUDA: left out, because version 12.8 or later with its static runtime is "
    "needed: ${CMAKE_CUDA_COMPILER} is version ${CMAKE_CUDA_COMPILER_VERSION}")
  return()
endif()
set(CMAKE_CUDA_FLAGS_RELEASE "-O3 -DNDEBUG") # -lineinfo would double the size of the plugins

add_library(dlc::cuda INTERFACE IMPORTED GLOBAL)
target_link_libraries(dlc::cuda INTERFACE CUDA::cudart_static)

# dlc_find_cuda_header(<name> <header>)
function(dlc_find_cuda_header name header)
  find_path(DLC_${name}_INCLUDE_DIR ${header} HINTS ${CUDAToolkit_INCLUDE_DIRS})
  mark_as_advanced(DLC_${name}_INCLUDE_DIR)
  if(DLC_${name}_INCLUDE_DIR)
    add_library(dlc::${name} INTERFACE IMPORTED GLOBAL)
    target_include_directories(dlc::${name} SYSTEM INTERFACE ${DLC_${name}_INCLUDE_DIR}
      ${CUDAToolkit_INCLUDE_DIRS})
  endif()
endfunction()
dlc_find_cuda_header(cudnn cudnn.h)
dlc_find_cuda_header(nccl nccl.h)
