# The functions that the CMakeLists.txt of each folder calls:
#
#   dlc_add_core(config SOURCES scan.c check.c LIBS base iniparser)
#   dlc_add_plugin(data/idx idx SOURCES idx.c LIBS zlib)
#   dlc_add_check(test_scan SOURCES test_scan.c LIBS config)
#
# LIBS takes core folders (base, config, ...; with their own dependencies), the libraries
# of cmake/libraries.cmake (zlib, dnnl, ...) and plain linker names (m).

include(dlcore_rule)
set(DLC_CORE_FOLDERS base config plugin topology job solver comm net data plan setup session checkpoint
  parallel run train)

# dlc_sort_libs(<folders> <libraries> <missing> <lib>...): sorts a LIBS list into
# core folders (with their dependencies), libraries to link, and what was not found.
function(dlc_sort_libs folders_out libraries_out missing_out)
  set(folders "")
  set(libraries "")
  set(missing "")
  set(todo ${ARGN})
  while(todo)
    list(POP_FRONT todo lib)
    if(lib IN_LIST DLC_CORE_FOLDERS)
      if(lib IN_LIST folders)
        continue()
      elseif(NOT TARGET dlc_${lib})
        list(APPEND missing "core/${lib}")
        continue()
      endif()
      list(APPEND folders ${lib})
      get_target_property(needs dlc_${lib} DLC_NEEDS)
      if(needs)
        list(APPEND todo ${needs})
      endif()
    elseif(TARGET dlc::${lib})
      list(APPEND libraries dlc::${lib})
    elseif(lib IN_LIST DLC_LIBRARIES OR (lib MATCHES "::" AND NOT TARGET ${lib}))
      list(APPEND missing ${lib})
    else()
      list(APPEND libraries ${lib})
    endif()
  endwhile()
  list(REMOVE_DUPLICATES libraries)
  list(REMOVE_DUPLICATES missing)
  set(${folders_out} "${folders}" PARENT_SCOPE)
  set(${libraries_out} "${libraries}" PARENT_SCOPE)
  set(${missing_out} "${missing}" PARENT_SCOPE)
endfunction()

# dlc_set_rpath(<target> <folder>): searches for libraries in this folder first, so that
# those of a bundle (packaging/bundle) are found wherever it is unpacked, then where they
# were at link time if that is no system folder. The build uses the same path: otherwise
# CMake would pad it with colons to the length of the other, and an empty entry means the
# current folder.
function(dlc_set_rpath target folder)
  set_target_properties(${target} PROPERTIES INSTALL_RPATH ${folder}
    INSTALL_RPATH_USE_LINK_PATH ON)
  if(NOT CMAKE_SKIP_INSTALL_RPATH)
    set_target_properties(${target} PROPERTIES BUILD_WITH_INSTALL_RPATH ON)
  endif()
endfunction()

# dlc_add_core(<name> [SMALL] SOURCES ... [FAST ...] [LIBS ...]): one folder of the core as
# an object library: libdlcore links all of them, a unit test those that it names. SMALL:
# optimize for size, except the FAST files.
function(dlc_add_core name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "SMALL" "" "SOURCES;LIBS;DEFINITIONS;FAST")
  set(target dlc_${name})
  add_library(${target} OBJECT ${arg_SOURCES})
  set_target_properties(${target} PROPERTIES DLC_NEEDS "${arg_LIBS}")
  target_include_directories(${target} PUBLIC
    ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/core)
  target_compile_definitions(${target} PRIVATE
    DLC_VERSION="${PROJECT_VERSION}"
    DLC_PLUGIN_DIR="${CMAKE_INSTALL_FULL_LIBDIR}/dlcore/0"
    ${arg_DEFINITIONS})
  target_link_libraries(${target} PRIVATE dlc_flags)
  # Debuggers use .debug_frame, and no exception passes through the core.
  target_compile_options(${target} PRIVATE
    $<$<CONFIG:Release>:-fno-asynchronous-unwind-tables>)
  if(arg_SMALL)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-Os>)
    set_source_files_properties(${arg_FAST} PROPERTIES
      COMPILE_OPTIONS $<$<CONFIG:Release>:-O2>)
  endif()
  foreach(lib IN LISTS arg_LIBS)
    if(lib IN_LIST DLC_CORE_FOLDERS)
      continue() # found through the include path; linked by the final target
    elseif(TARGET dlc::${lib})
      target_link_libraries(${target} PUBLIC dlc::${lib})
    elseif(lib IN_LIST DLC_LIBRARIES)
      message(FATAL_ERROR "core/${name} needs ${lib}, which was not found")
    else()
      target_link_libraries(${target} PUBLIC ${lib})
    endif()
  endforeach()
  set_property(GLOBAL APPEND PROPERTY DLC_CORE_TARGETS ${target})
endfunction()

# dlc_add_rule(<target> <file>): compiles a header of rules for GPUs, if CUDA was found.
function(dlc_add_rule target file)
  set(nvcc "")
  if(TARGET dlc::cuda)
    set(nvcc ${CMAKE_CUDA_COMPILER})
  endif()
  dlcore_add_rule(${target} ${file} ${PROJECT_SOURCE_DIR}/include "${nvcc}"
    ${CMAKE_CUDA_ARCHITECTURES})
endfunction()

# dlc_add_plugin(<folder> <name> SOURCES ... [RULE <file>] [LIBS ...]): a plugin,
# lib/dlcore/0/<kind>-<name>.so, which exports only dlc_plugin_v0. Left out if one of its
# libraries is missing. RULE: the header with a solver's rules, to be compiled for GPUs too.
function(dlc_add_plugin folder name)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "RULE" "SOURCES;LIBS;DEFINITIONS")
  string(REGEX REPLACE "/.*" "" kind ${folder})
  string(REGEX REPLACE "^(device|solver|decoder)s$" "\\1" kind ${kind})
  set(target ${kind}-${name})
  dlc_sort_libs(folders libraries missing ${arg_LIBS})
  if(folders)
    message(FATAL_ERROR "plugin ${target} may not link the core (${folders})")
  endif()
  if(missing)
    list(JOIN missing ", " missing)
    message(STATUS "plugin ${target} is left out: ${missing} was not found")
    return()
  endif()
  add_library(${target} MODULE ${arg_SOURCES})
  set_target_properties(${target} PROPERTIES
    PREFIX "" SUFFIX ".so" C_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden
    CUDA_RUNTIME_LIBRARY Static
    LIBRARY_OUTPUT_DIRECTORY ${DLC_PLUGIN_OUTPUT_DIR}
    LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/plugin.map)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/include)
  target_compile_definitions(${target} PRIVATE
    DLC_VERSION="${PROJECT_VERSION}" ${arg_DEFINITIONS})
  target_link_libraries(${target} PRIVATE dlc_flags ${libraries})
  # libc by name, even if nothing of it is called: packages must say what they are linked
  # against.
  target_link_options(${target} PRIVATE -Wl,-z,defs -Wl,--no-as-needed,-lc,--as-needed
    -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/plugin.map)
  if(kind STREQUAL "solver")
    dlcore_set_rule_options(${target})
  endif()
  if(arg_RULE)
    dlc_add_rule(${target} ${arg_RULE})
  endif()
  dlc_set_rpath(${target} $ORIGIN/../..)
  # dlcore refuses files that a group can write to, which umask 002 would create.
  add_custom_command(TARGET ${target} POST_BUILD VERBATIM
    COMMAND chmod go-w $<TARGET_FILE:${target}> ${DLC_PLUGIN_OUTPUT_DIR})
  install(TARGETS ${target} LIBRARY DESTINATION ${DLC_PLUGIN_INSTALL_DIR})
  set_property(GLOBAL APPEND PROPERTY DLC_PLUGIN_TARGETS ${target})
  if(NOT arg_LIBS MATCHES "(^|;)(cuda|cudnn|nccl)(;|$)")
    set_property(GLOBAL APPEND PROPERTY DLC_CPU_PLUGIN_TARGETS ${target})
  endif()
endfunction()

# The environment of every test: where the build is, and options of the sanitizers. Page
# faults dominate their cost, so the quarantine of freed memory is small (16 MiB, not 256),
# and so are the fake stacks that detect a use after return (64 KiB, not 1 MiB).
set(DLC_ASAN_OPTIONS "detect_leaks=1:detect_stack_use_after_return=1:\
strict_string_checks=1:max_uar_stack_size_log=16:quarantine_size_mb=16:\
thread_local_quarantine_size_kb=64:handle_sigill=1")
set(DLC_TEST_ENVIRONMENT
  DLCORE_SOURCE_DIR=${PROJECT_SOURCE_DIR}
  DLCORE_BUILD_DIR=${PROJECT_BINARY_DIR}
  DLCORE_BIN=${PROJECT_BINARY_DIR}/bin/dlcore
  DLCORE_PLUGIN_PATH=${DLC_PLUGIN_OUTPUT_DIR}
  DLCORE_SANITIZE=${DLC_SANITIZE}
  XDG_CACHE_HOME=${PROJECT_BINARY_DIR}/tests/cache
  ASAN_OPTIONS=${DLC_ASAN_OPTIONS}
  LSAN_OPTIONS=use_tls=0:print_suppressions=0:suppressions=${PROJECT_SOURCE_DIR}/tests/lsan.supp
  TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/tsan.supp
  UBSAN_OPTIONS=print_stacktrace=1
  OMP_WAIT_POLICY=passive) # threads that spin take cores from tests beside them

# dlc_set_test(<test> [LABELS ...] [TIMEOUT s] [ENVIRONMENT ...]): the settings that
# every test has, including one made by a bare add_test(). Those with the longest time limit
# start first, so that no long test is left for the end.
function(dlc_set_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "LABELS;ENVIRONMENT")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  set_tests_properties(${name} PROPERTIES
    LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT} COST ${arg_TIMEOUT} SKIP_RETURN_CODE 77
    ENVIRONMENT "${DLC_TEST_ENVIRONMENT};CK_TIMEOUT_MULTIPLIER=5;${arg_ENVIRONMENT}")
endfunction()

# dlc_add_test_plugin(<target> <folder> <name> <source>...): the plugin <folder>/<name>.so,
# for tests that have the folder in DLCORE_PLUGIN_PATH.
function(dlc_add_test_plugin target folder name)
  add_library(${target} MODULE ${ARGN})
  set_target_properties(${target} PROPERTIES PREFIX "" OUTPUT_NAME ${name}
    C_VISIBILITY_PRESET hidden LIBRARY_OUTPUT_DIRECTORY ${folder})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/include)
  # As in dlc_add_plugin.
  add_custom_command(TARGET ${target} POST_BUILD VERBATIM
    COMMAND chmod go-w $<TARGET_FILE:${target}> ${folder})
endfunction()

# dlc_add_shared(<name> <source>...): sources of several test programs, compiled once; link
# them with $<TARGET_OBJECTS:name>.
function(dlc_add_shared name)
  add_library(${name} OBJECT EXCLUDE_FROM_ALL ${ARGN})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/include
    ${PROJECT_SOURCE_DIR}/core ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE dlc_flags dlc::check)
endfunction()

# dlc_share_support(<sources> <source>...): replaces sources of tests/support by objects
# that all programs share.
function(dlc_share_support sources_out)
  set(sources "")
  foreach(source IN LISTS ARGN)
    get_filename_component(file ${source} ABSOLUTE)
    get_filename_component(folder ${file} DIRECTORY)
    if(folder STREQUAL "${PROJECT_SOURCE_DIR}/tests/support")
      get_filename_component(name ${file} NAME_WE)
      if(NOT TARGET support-${name})
        dlc_add_shared(support-${name} ${file})
      endif()
      set(source $<TARGET_OBJECTS:support-${name}>)
    endif()
    list(APPEND sources ${source})
  endforeach()
  set(${sources_out} "${sources}" PARENT_SCOPE)
endfunction()

# dlc_add_check(<name> SOURCES ... [LIBS ...] ...): a test program that uses Check. Its label
# is unit unless LABELS says otherwise. Unit tests run under valgrind too (ctest -C valgrind)
# unless NO_VALGRIND is given. There, and under the address sanitizer, one process runs all
# tests of the program, so that code is translated and leaks are looked for once. OWN, or
# NO_VALGRIND under the sanitizer, gives each test a process of its own.
function(dlc_add_check name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "NO_VALGRIND;OWN" "TIMEOUT"
    "SOURCES;LIBS;LABELS;DEFINITIONS;ENVIRONMENT")
  dlc_sort_libs(folders libraries missing check ${arg_LIBS})
  if(missing)
    list(JOIN missing ", " missing)
    message(STATUS "test ${name} is left out: ${missing} was not found") # only CUDA: see testing.cmake
    return()
  endif()
  list(TRANSFORM folders PREPEND dlc_)
  set(support test.c mark_point.c)
  if(DLC_SANITIZE MATCHES address)
    list(APPEND support loader_lists.c)
  endif()
  list(TRANSFORM support PREPEND ${PROJECT_SOURCE_DIR}/tests/support/)
  dlc_share_support(sources ${arg_SOURCES} ${support})
  add_executable(${name} ${sources})
  # Each program has much of the core: lld links it in a third of ld's time.
  target_link_options(${name} PRIVATE -Wl,--wrap=_mark_point -fuse-ld=lld)
  set_target_properties(${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/bin)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/include
    ${PROJECT_SOURCE_DIR}/core ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(${name} PRIVATE
    DLC_VERSION="${PROJECT_VERSION}" ${arg_DEFINITIONS})
  target_link_libraries(${name} PRIVATE dlc_flags ${folders} ${libraries} m)

  set(settings LABELS ${arg_LABELS} ENVIRONMENT ${arg_ENVIRONMENT})
  set(fork no)
  if(arg_OWN OR (DLC_SANITIZE AND arg_NO_VALGRIND))
    set(fork yes)
  endif()
  if(DLC_SANITIZE MATCHES address)
    list(APPEND settings CK_FORK=${fork})
  endif()
  if(arg_TIMEOUT)
    list(APPEND settings TIMEOUT ${arg_TIMEOUT})
  endif()
  add_test(NAME ${name} COMMAND ${name})
  dlc_set_test(${name} ${settings})

  if(arg_NO_VALGRIND OR DLC_SANITIZE OR (arg_LABELS AND NOT "unit" IN_LIST arg_LABELS))
    return()
  endif()
  add_test(NAME valgrind.${name} CONFIGURATIONS valgrind
    COMMAND ${PROJECT_SOURCE_DIR}/tests/valgrind.sh $<TARGET_FILE:${name}>)
  dlc_set_test(valgrind.${name} LABELS valgrind TIMEOUT 600
    ENVIRONMENT ${arg_ENVIRONMENT} CK_FORK=${fork} CK_TIMEOUT_MULTIPLIER=50)
endfunction()
