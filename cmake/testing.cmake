# The requirements of DLC_BUILD_TESTS. Tests are left out only if there is no CUDA toolkit
# (or DLC_CUDA=OFF): anything else that is missing is a configuration error, so that tests
# never disappear unnoticed. tests/list.txt names them all.

# program:Debian package. The cached DLC_PROGRAM_<program> is its path.
set(DLC_TEST_PROGRAMS valgrind:valgrind mpirun:openmpi-bin ip:iproute2 mandoc:mandoc
  patchelf:patchelf abidw:abigail-tools bash:bash ld.lld:lld)

# dlc_find_missing_for_tests(<missing>): lists what the tests need and was not found.
function(dlc_find_missing_for_tests missing_out)
  set(missing "")
  set(libraries ${DLC_LIBRARIES})
  if(NOT TARGET dlc::cuda) # with CUDA, tests need both libraries too
    list(REMOVE_ITEM libraries cuda cudnn nccl)
  endif()
  foreach(name IN LISTS libraries)
    if(NOT TARGET dlc::${name})
      list(APPEND missing ${name})
    endif()
  endforeach()
  foreach(pair IN LISTS DLC_TEST_PROGRAMS)
    string(REPLACE ":" ";" pair ${pair})
    list(GET pair 0 program)
    list(GET pair 1 package)
    find_program(DLC_PROGRAM_${program} ${program} PATHS /usr/sbin /sbin)
    mark_as_advanced(DLC_PROGRAM_${program})
    if(NOT EXISTS "${DLC_PROGRAM_${program}}")
      list(APPEND missing "${program} (Debian: ${package})")
    endif()
  endforeach()
  set(${missing_out} "${missing}" PARENT_SCOPE)
endfunction()

# dlc_find_amx(<found>): whether this machine's CPU has Intel's tiles.
function(dlc_find_amx found_out)
  set(found "")
  if(EXISTS /proc/cpuinfo)
    file(STRINGS /proc/cpuinfo found REGEX "amx_tile" LIMIT_COUNT 1)
  endif()
  set(${found_out} "${found}" PARENT_SCOPE)
endfunction()

# Fails unless everything was found; writes tests/features.txt, the conditions that
# tests/list.txt may name, to the build folder.
function(dlc_require_for_tests)
  dlc_find_missing_for_tests(missing)
  if(missing)
    list(JOIN missing ", " missing)
    message(FATAL_ERROR "DLC_BUILD_TESTS is on, but the tests need packages that were not found: "
      "${missing}.\nOn Debian or Ubuntu run packaging/deps.sh; elsewhere install them. "
      "Without tests: -DDLC_BUILD_TESTS=OFF")
  endif()
  set(features "")
  if(TARGET dlc::cuda)
    string(APPEND features "cuda\n")
  endif()
  dlc_find_amx(amx)
  if(amx)
    string(APPEND features "amx\n")
  endif()
  file(WRITE ${PROJECT_BINARY_DIR}/tests/features.txt "${features}")
endfunction()
