# Compiler settings: language, warnings, hardening, sanitizers. The flags are properties of
# the interface target dlc_flags, which every target here links.

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug or Release" FORCE)
endif()
# Always with debug information: functions and lines, for useful crash reports. Variables
# would take a third of the compile time of the kernels.
set(CMAKE_C_FLAGS_RELEASE "-O2 -g1 -DNDEBUG")
set(CMAKE_C_FLAGS_DEBUG "-O1 -g")

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
set(DLC_PLUGIN_OUTPUT_DIR ${PROJECT_BINARY_DIR}/lib/dlcore/0)
set(DLC_PLUGIN_INSTALL_DIR ${CMAKE_INSTALL_LIBDIR}/dlcore/0)

add_library(dlc_flags INTERFACE)
target_compile_definitions(dlc_flags INTERFACE _GNU_SOURCE)
# Adds options for the C compiler, and for the host compiler that nvcc calls.
function(dlc_add_flags)
  # nvcc splits options at commas, so each sanitizer gets an option of its own.
  string(REGEX REPLACE "(-fsanitize=[a-z]+),([a-z]+)" "\\1,-fsanitize=\\2" joined "${ARGN}")
  list(JOIN joined "," joined)
  target_compile_options(dlc_flags INTERFACE
    "$<$<COMPILE_LANGUAGE:C>:${ARGN}>" "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${joined}>")
endfunction()

target_compile_options(dlc_flags INTERFACE "$<$<COMPILE_LANGUAGE:C>:-Wpedantic;-Wshadow;\
-Wconversion;-Wno-sign-conversion;-Wstrict-prototypes;-Wmissing-prototypes;-Wvla;\
-Wformat=2;-Wundef>")
dlc_add_flags(-Wall -Wextra -fno-semantic-interposition -fstack-protector-strong)
if(DLC_WERROR)
  dlc_add_flags(-Werror)
  target_compile_options(dlc_flags INTERFACE
    "$<$<COMPILE_LANGUAGE:CUDA>:--Werror=all-warnings>")
endif()
target_link_options(dlc_flags INTERFACE -Wl,-z,relro -Wl,-z,now -Wl,--as-needed)

if(DLC_SANITIZE)
  dlc_add_flags(-fsanitize=${DLC_SANITIZE} -fno-sanitize-recover=all
    -fno-omit-frame-pointer -g1) # enough for functions and lines
  # Undefined behaviour traps, and the address sanitizer says where (handle_sigill). A full
  # report would double compile time and need a hundred times the writable data, which the
  # leak checker scans in every process.
  if(DLC_SANITIZE MATCHES "address.*undefined")
    dlc_add_flags(-fsanitize-undefined-trap-on-error)
  endif()
  target_link_options(dlc_flags INTERFACE -fsanitize=${DLC_SANITIZE})
elseif(CMAKE_BUILD_TYPE STREQUAL "Release")
  dlc_add_flags(-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
endif()
