# dlcore_add_rule(<target> <file> <include folder> <nvcc> <architectures>)
#
# For both ways to build a solver, in this tree and out of it. <file> is a header with
# nothing but rules (DLC_RULE of <dlcore/rule.h>), which a source of the target includes.
# nvcc compiles it to a fat binary, which becomes the array dlc_rule_image of the target.
# <nvcc> may be empty: then the target has no kernels, and GPUs cannot run its rules.

# dlcore_set_rule_options(<target>): rules are loops to vectorize, with bitwise identical
# results on every instruction set and on GPUs: nothing is contracted into FMA. Neither
# errno nor the exceptions of IEEE 754 are looked at, and they would prevent vectorization.
function(dlcore_set_rule_options target)
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:C,CXX>:-O3;-ffp-contract=off;\
-fno-math-errno;-fno-trapping-math>")
endfunction()

# dlcore_rule_architectures(<out> <architecture>...): CMAKE_CUDA_ARCHITECTURES as options.
function(dlcore_rule_architectures out)
  set(options "")
  foreach(architecture IN LISTS ARGN)
    if(architecture MATCHES "^([0-9]+[af]?)-real$")
      list(APPEND options -gencode=arch=compute_${CMAKE_MATCH_1},code=sm_${CMAKE_MATCH_1})
    elseif(architecture MATCHES "^([0-9]+[af]?)-virtual$")
      list(APPEND options -gencode=arch=compute_${CMAKE_MATCH_1},code=compute_${CMAKE_MATCH_1})
    elseif(architecture MATCHES "^([0-9]+[af]?)$")
      list(APPEND options -gencode=arch=compute_${architecture},code=[sm_${architecture},compute_${architecture}])
    else()
      list(APPEND options -arch=${architecture}) # all, all-major, native
    endif()
  endforeach()
  set(${out} "${options}" PARENT_SCOPE)
endfunction()

function(dlcore_add_rule target file include nvcc)
  if(NOT nvcc)
    message(STATUS "${target} has no kernels for GPUs: nvcc was not found")
    return()
  endif()
  get_filename_component(file ${file} ABSOLUTE)
  dlcore_rule_architectures(architectures ${ARGN})
  set(image ${CMAKE_CURRENT_BINARY_DIR}/${target}.fatbin)
  add_custom_command(OUTPUT ${image} VERBATIM
    COMMAND ${nvcc} -x cu -fatbin -O3 -std=c++17 -fmad=false ${architectures}
      -I${include} -o ${image} ${file}
    DEPENDS ${file} ${include}/dlcore/rule.h ${include}/dlcore/rule_kernel.cuh
    COMMENT "Compiling the rules of ${target} for GPUs")
  # C has no #embed before C23, but every assembler has .incbin.
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${target}.image.c)
  file(CONFIGURE OUTPUT ${source} @ONLY CONTENT [[
/* The kernels of this plugin's rules, from cmake/dlcore_rule.cmake. */
__asm__(".pushsection .rodata\n"
        ".balign 64\n"
        ".globl dlc_rule_image\n"
        ".hidden dlc_rule_image\n"
        "dlc_rule_image:\n"
        ".incbin \"@image@\"\n"
        ".popsection\n");
extern const unsigned char dlc_rule_image[];
]])
  set_source_files_properties(${source} PROPERTIES OBJECT_DEPENDS ${image})
  target_sources(${target} PRIVATE ${source})
  target_compile_definitions(${target} PRIVATE DLC_RULE_HAS_IMAGE)
endfunction()
