# Tests of cuDNN's plans, made for the description of a GPU that is not here.
if(NOT TARGET layers-cudnn)
  return()
endif()
find_library(DLC_CUDNN_LIBRARY libcudnn.so.9 HINTS ${CUDAToolkit_LIBRARY_DIR})
mark_as_advanced(DLC_CUDNN_LIBRARY)
if(NOT DLC_CUDNN_LIBRARY)
  message(STATUS "tests of cuDNN's plans are left out: libcudnn.so.9 was not found")
  return()
endif()
# The plans must not go to the user's cache. Without a GPU NVIDIA's libraries leak memory,
# in modules that are unloaded at exit, so LeakSanitizer cannot suppress them by name.
set(described DLCORE_CUDNN_PLAN_FOR=${CMAKE_CURRENT_SOURCE_DIR}/h200-deviceprop.json
  XDG_CACHE_HOME=${CMAKE_CURRENT_BINARY_DIR}/cache
  ASAN_OPTIONS=${DLC_ASAN_OPTIONS}:detect_leaks=0)

if(NOT DLC_SANITIZE) # all models; with sanitizers test_cudnn_graph covers every kind of graph
  dlc_add_check(test_cudnn_models SOURCES test_cudnn_models.c
    LIBS net plugin config base check NO_VALGRIND TIMEOUT 600
    ENVIRONMENT ${described} DLCORE_CUDNN_CACHE=no)
endif()

# Graphs only; the kernels of the family are emulated.
set(folder ${PROJECT_SOURCE_DIR}/plugins/layers/cudnn)
dlc_add_check(test_cudnn_graph SOURCES test_cudnn_graph.c ${PROJECT_SOURCE_DIR}/tests/support/scratch.c
    ${folder}/graph.c ${folder}/plan.c ${folder}/autotune.c ${folder}/plan_cache.c ${folder}/family.c
    ${folder}/layout.c ${folder}/layout_reorder.c ${folder}/library.c
    $<TARGET_OBJECTS:cudnn-emulated-reorder> $<TARGET_OBJECTS:cudnn-emulated-fold>
  LIBS plugin config base check cuda cudnn NO_VALGRIND
  ENVIRONMENT ${described} DLCORE_CUDNN_CACHE=no)
if(TARGET test_cudnn_graph)
  target_include_directories(test_cudnn_graph PRIVATE ${folder})
  set_target_properties(test_cudnn_graph PROPERTIES CUDA_RUNTIME_LIBRARY Static)
endif()
