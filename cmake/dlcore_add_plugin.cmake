# dlcore_add_plugin(<kind> <name> SOURCES <file>... [RULE <file>] [LIBS <library>...])
#
# Builds the plugin <kind>-<name>.so, target <kind>-<name>: it exports the one symbol
# dlc_plugin_v0 and has no undefined symbols. Kinds: device, transport, layer, solver,
# consistency, data, decoder. LIBS goes to target_link_libraries(). If project() has a
# VERSION, the sources get it as the string PLUGIN_VERSION.
#
# RULE is the header with the rules of a solver (DLC_RULE) and nothing else. If nvcc is
# found, they are compiled for GPUs as well: for CMAKE_CUDA_ARCHITECTURES, or otherwise for
# all major architectures that nvcc knows.
#
# The plugin is built in <build>/plugins, which DLCORE_PLUGIN_PATH can name. It is installed
# where dlcore looks for plugins, whatever CMAKE_INSTALL_PREFIX is (DESTDIR is honoured);
# set DLCORE_PLUGIN_INSTALL_DIR for another folder.

set(DLCORE_PLUGIN_INSTALL_DIR "${dlcore_PLUGINS_DIR}" CACHE PATH
  "Where plugins of dlcore are installed")

include(${CMAKE_CURRENT_LIST_DIR}/dlcore_rule.cmake)

# dlcore_find_nvcc(<nvcc> <architectures>)
function(dlcore_find_nvcc nvcc_out architectures_out)
  set(architectures all-major)
  if(CMAKE_CUDA_ARCHITECTURES)
    set(architectures ${CMAKE_CUDA_ARCHITECTURES})
  endif()
  find_program(DLCORE_NVCC nvcc HINTS ${CMAKE_CUDA_COMPILER} ENV CUDACXX
    PATHS $ENV{CUDA_PATH}/bin /usr/local/cuda/bin)
  mark_as_advanced(DLCORE_NVCC)
  set(${nvcc_out} "" PARENT_SCOPE)
  if(DLCORE_NVCC)
    set(${nvcc_out} ${DLCORE_NVCC} PARENT_SCOPE)
  endif()
  set(${architectures_out} ${architectures} PARENT_SCOPE)
endfunction()

function(dlcore_add_plugin kind name)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "SOURCES;LIBS;RULE")
  list(REMOVE_ITEM arg_KEYWORDS_MISSING_VALUES RULE) # RULE ${rules} may name none
  set(call "dlcore_add_plugin(${kind} ${name})")
  if(NOT kind MATCHES "^(device|transport|layer|solver|consistency|data|decoder)$")
    message(FATAL_ERROR "${call}: '${kind}' is not a kind of plugin: device, transport, "
      "layer, solver, consistency, data or decoder")
  endif()
  if(NOT name MATCHES "^[a-z0-9_-]+$")
    message(FATAL_ERROR "${call}: a name may contain only a-z, 0-9, '-' and '_'")
  endif()
  if(NOT arg_SOURCES)
    message(FATAL_ERROR "${call}: SOURCES is missing")
  endif()
  if(arg_UNPARSED_ARGUMENTS OR arg_KEYWORDS_MISSING_VALUES)
    message(FATAL_ERROR "${call}: unknown argument, or keyword without a value: "
      "'${arg_UNPARSED_ARGUMENTS}${arg_KEYWORDS_MISSING_VALUES}'")
  endif()

  set(target ${kind}-${name})
  add_library(${target} MODULE ${arg_SOURCES})
  set_target_properties(${target} PROPERTIES
    PREFIX "" SUFFIX ".so"
    C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden
    CUDA_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    POSITION_INDEPENDENT_CODE ON
    LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/plugins"
    LINK_DEPENDS "${dlcore_PLUGIN_MAP}")
  if(PROJECT_VERSION)
    target_compile_definitions(${target} PRIVATE PLUGIN_VERSION="${PROJECT_VERSION}")
  endif()
  target_link_libraries(${target} PRIVATE dlcore::headers ${arg_LIBS})
  # libc by name, even if nothing of it is called: packages must say what they are linked
  # against.
  target_link_options(${target} PRIVATE -Wl,-z,defs -Wl,--no-as-needed,-lc,--as-needed
    "-Wl,--version-script=${dlcore_PLUGIN_MAP}")
  if(kind STREQUAL "solver")
    dlcore_set_rule_options(${target})
  endif()
  if(arg_RULE)
    dlcore_find_nvcc(nvcc architectures)
    dlcore_add_rule(${target} ${arg_RULE} ${dlcore_INCLUDE_DIR} "${nvcc}" ${architectures})
  endif()
  # dlcore refuses files that a group can write to, which umask 002 would create.
  add_custom_command(TARGET ${target} POST_BUILD VERBATIM
    COMMAND chmod go-w "$<TARGET_FILE:${target}>" "${CMAKE_BINARY_DIR}/plugins")
  install(TARGETS ${target} LIBRARY DESTINATION "${DLCORE_PLUGIN_INSTALL_DIR}"
    PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
endfunction()
