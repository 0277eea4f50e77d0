# Finds every library once and defines a target dlc::<name> for it. Libraries of the core
# are required; a plugin whose library is missing is left out. LIBS of the functions in
# dlcore.cmake takes these names.

set(DLC_LIBRARIES iniparser hwloc expat jansson xxhash zlib deflate jpeg png webp hdf5 dnnl openmp threads check lmdb ucx mpi crypto pmix
  cuda cudnn nccl)
find_package(PkgConfig REQUIRED)

# dlc_find_library_pair(<name> <header> <library or empty>): for libraries
# without a .pc file, and for those that are a single header.
function(dlc_find_library_pair name header library)
  find_path(DLC_${name}_INCLUDE_DIR ${header} PATH_SUFFIXES ${name})
  mark_as_advanced(DLC_${name}_INCLUDE_DIR)
  if(NOT DLC_${name}_INCLUDE_DIR)
    return()
  endif()
  if(library)
    find_library(DLC_${name}_LIBRARY ${library})
    mark_as_advanced(DLC_${name}_LIBRARY)
    if(NOT DLC_${name}_LIBRARY)
      return()
    endif()
  endif()
  add_library(dlc::${name} INTERFACE IMPORTED GLOBAL)
  target_include_directories(dlc::${name} INTERFACE ${DLC_${name}_INCLUDE_DIR})
  if(library)
    target_link_libraries(dlc::${name} INTERFACE ${DLC_${name}_LIBRARY})
  endif()
endfunction()

# dlc_find_pc(<name> <pkg-config module and version>)
function(dlc_find_pc name)
  string(TOUPPER DLC_PC_${name} prefix)
  pkg_check_modules(${prefix} QUIET IMPORTED_TARGET GLOBAL ${ARGN})
  if(${prefix}_FOUND)
    add_library(dlc::${name} INTERFACE IMPORTED GLOBAL)
    target_link_libraries(dlc::${name} INTERFACE PkgConfig::${prefix})
  endif()
endfunction()

# dlc_alias_found(<name> <imported target>): for a library that find_package() found.
function(dlc_alias_found name target)
  if(TARGET ${target})
    add_library(dlc::${name} INTERFACE IMPORTED GLOBAL)
    target_link_libraries(dlc::${name} INTERFACE ${target})
  endif()
endfunction()

# Libraries of the core.
dlc_find_library_pair(iniparser iniparser.h iniparser) # 4.1 has no .pc file
dlc_find_library_pair(xxhash xxhash.h "") # used inline: XXH_INLINE_ALL
if(TARGET dlc::xxhash)
  target_compile_definitions(dlc::xxhash INTERFACE XXH_INLINE_ALL)
endif()
dlc_find_pc(hwloc hwloc>=2.4)
dlc_find_pc(expat expat>=2.4)
dlc_find_pc(jansson jansson>=2.13)
dlc_find_pc(zlib zlib)
dlc_find_pc(crypto libcrypto>=3.0)
# Optional, for ranks started by mpirun or srun. Headers only: the library is opened when
# such a rank needs it.
pkg_check_modules(DLC_PC_PMIX QUIET pmix>=3)
if(DLC_PC_PMIX_FOUND)
  add_library(dlc::pmix INTERFACE IMPORTED GLOBAL)
  target_include_directories(dlc::pmix INTERFACE ${DLC_PC_PMIX_INCLUDE_DIRS})
endif()
find_package(Threads REQUIRED)
dlc_alias_found(threads Threads::Threads)

# Libraries of the plugins.
dlc_find_pc(deflate libdeflate)
dlc_find_pc(jpeg libjpeg>=2.0) # of libjpeg-turbo: others cannot decode parts
dlc_find_pc(png libpng>=1.6)
dlc_find_pc(webp libwebp>=1.0)
dlc_find_pc(hdf5 hdf5>=1.10.5)
# Not oneDNN's own CMake package, which requires OpenCL in Debian 12.
dlc_find_library_pair(dnnl oneapi/dnnl/dnnl.h dnnl)
find_package(OpenMP QUIET COMPONENTS C)
dlc_alias_found(openmp OpenMP::OpenMP_C)
# Headers only: the plugin opens the library when a job uses it.
pkg_check_modules(DLC_PC_UCX QUIET ucx>=1.13)
if(DLC_PC_UCX_FOUND)
  add_library(dlc::ucx INTERFACE IMPORTED GLOBAL)
  target_include_directories(dlc::ucx INTERFACE ${DLC_PC_UCX_INCLUDE_DIRS})
endif()

# The MPI that Debian's alternatives select; else Open MPI; else MPICH.
foreach(module mpi-c ompi-c mpich)
  if(NOT TARGET dlc::mpi)
    dlc_find_pc(mpi ${module})
  endif()
endforeach()

include(cuda)

# Libraries of the tests.
dlc_find_pc(check check>=0.15)
dlc_find_pc(lmdb lmdb)

set(missing "")
foreach(name iniparser hwloc expat jansson xxhash)
  if(NOT TARGET dlc::${name})
    list(APPEND missing ${name})
  endif()
endforeach()
if(missing)
  list(JOIN missing ", " missing)
  message(FATAL_ERROR "The core needs libraries that were not found: ${missing}.\n"
    "On Debian or Ubuntu run packaging/deps.sh; elsewhere install the development "
    "packages of the libraries that packaging/debian/control lists.")
endif()
