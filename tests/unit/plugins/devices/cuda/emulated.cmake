# The cuda device's kernels as a device that runs on the CPU, and the conformance tests
# of devices on it.
enable_language(CXX)
add_library(cuda-emulated OBJECT fakes/emulated.cpp fakes/emulated_rules.cpp)
target_include_directories(cuda-emulated PRIVATE ${PROJECT_SOURCE_DIR}/include
  ${PROJECT_SOURCE_DIR}/tests ${cuda})
target_compile_definitions(cuda-emulated PRIVATE _GNU_SOURCE EMULATED="${cuda}/kernels.cu")
target_compile_options(cuda-emulated PRIVATE -O2 -ffp-contract=off -Wno-unknown-pragmas
  -Wno-attributes)
target_link_libraries(cuda-emulated PRIVATE dlc::cuda)
set_target_properties(cuda-emulated PROPERTIES
  CXX_STANDARD 17 CXX_VISIBILITY_PRESET hidden POSITION_INDEPENDENT_CODE ON)

set(folder ${CMAKE_CURRENT_BINARY_DIR}/plugins)
dlc_add_test_plugin(test-emulated ${folder} device-emulated fakes/on_host.c ${cuda}/compute.c
  ${cuda}/rules.c $<TARGET_OBJECTS:cuda-emulated>)
target_include_directories(test-emulated PRIVATE ${cuda})
target_compile_definitions(test-emulated PRIVATE DLC_VERSION="${PROJECT_VERSION}")
# CUDA's headers only; the runtime is fake.
target_include_directories(test-emulated SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
target_link_libraries(test-emulated PRIVATE dlc_flags dlc::threads)

foreach(what kernels convert precision)
  if(TARGET test_device_${what})
    add_dependencies(test_device_${what} test-emulated)
    add_test(NAME test_device_${what}_emulated COMMAND test_device_${what})
    dlc_set_test(test_device_${what}_emulated LABELS conformance ENVIRONMENT
      DLCORE_TEST_DEVICE=emulated
      DLCORE_PLUGIN_PATH=${DLC_PLUGIN_OUTPUT_DIR}:${folder})
  endif()
endforeach()
