# The layers of layers/cudnn on the host, as a plugin that the conformance tests of layers
# load. The tests of the kernels follow.
set(folder ${PROJECT_SOURCE_DIR}/plugins/layers/cudnn)
set(sources "")
foreach(name activation eltwise tensors pooling upsample lrn softmax labels softmax_loss pair_loss accuracy
    dropout scale concat flatten layout layout_reorder fold relu)
  list(APPEND sources ${folder}/${name}.c)
endforeach()
# Plain loops replace cuDNN and cuBLASLt, and kernels are emulated. Sanitizers cannot follow
# the fibers of the emulation: for them the bodies in kernels/ run in plain loops.
foreach(name convolution deconvolution filters inner_product weighted batch_norm)
  list(APPEND sources ${folder}/${name}.c)
endforeach()
enable_language(CXX)
set(emulated "")
set(kernels norm bias reorder fold)
if(DLC_SANITIZE)
  list(APPEND sources host_kernels.c)
else()
  list(APPEND kernels kernels/labels kernels/lrn kernels/pair_loss kernels/pointwise kernels/pooling
    kernels/simple kernels/softmax kernels/upsample)
endif()
foreach(file IN LISTS kernels)
  get_filename_component(name ${file} NAME)
  add_library(cudnn-emulated-${name} OBJECT emulated.cpp)
  target_include_directories(cudnn-emulated-${name} PRIVATE
    ${PROJECT_SOURCE_DIR}/include ${CMAKE_CURRENT_SOURCE_DIR})
  target_compile_definitions(cudnn-emulated-${name} PRIVATE
    EMULATED="${folder}/${file}.cu")
  target_compile_options(cudnn-emulated-${name} PRIVATE -O2 -Wno-unknown-pragmas)
  target_link_libraries(cudnn-emulated-${name} PRIVATE dlc::cudnn)
  set_target_properties(cudnn-emulated-${name} PROPERTIES
    CXX_STANDARD 17 CXX_VISIBILITY_PRESET hidden POSITION_INDEPENDENT_CODE ON)
  list(APPEND emulated $<TARGET_OBJECTS:cudnn-emulated-${name}>)
endforeach()
add_library(layers-host MODULE host_layers.c host_products.c ${sources} ${emulated})
set_target_properties(layers-host PROPERTIES
  PREFIX "" C_VISIBILITY_PRESET hidden
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/lib)
target_include_directories(layers-host PRIVATE ${PROJECT_SOURCE_DIR}/include ${folder})
target_compile_definitions(layers-host PRIVATE DLC_VERSION="${PROJECT_VERSION}")
target_link_libraries(layers-host PRIVATE dlc_flags dlc::cudnn m layers-shared)

# With emulated kernels these take minutes under sanitizers, which check little of them.
set(slow images norm group weighted pointwise)
if(DLC_SANITIZE)
  set(slow "")
endif()
foreach(name labels dropout params ${slow})
  if(TARGET test_layers_${name})
    add_dependencies(test_layers_${name} layers-host)
    add_test(NAME test_layers_${name}.cudnn COMMAND test_layers_${name})
    dlc_set_test(test_layers_${name}.cudnn LABELS conformance
      ENVIRONMENT DLCORE_TEST_LAYERS=$<TARGET_FILE:layers-host>)
  endif()
endforeach()

dlc_add_check(test_cudnn_bodies SOURCES test_cudnn_bodies.c host_kernels.c LIBS base cudnn)
if(TARGET test_cudnn_bodies)
  target_include_directories(test_cudnn_bodies PRIVATE ${folder})
endif()

dlc_add_check(test_cudnn_emulated SOURCES test_cudnn_emulated.c ${emulated}
  LIBS base cudnn NO_VALGRIND)
if(TARGET test_cudnn_emulated)
  target_include_directories(test_cudnn_emulated PRIVATE ${folder})
endif()

# A convolution that passes statistics to a batch norm.
dlc_add_check(test_cudnn_pair SOURCES test_cudnn_pair.c ${PROJECT_SOURCE_DIR}/tests/support/plugins.c
  LIBS plugin config base check cudnn NO_VALGRIND
  ENVIRONMENT DLCORE_TEST_LAYERS=$<TARGET_FILE:layers-host>)
if(TARGET test_cudnn_pair)
  target_include_directories(test_cudnn_pair PRIVATE ${folder})
  add_dependencies(test_cudnn_pair layers-host)
endif()

# Without an engine that adds a bias or an activation.
if(TARGET test_layers_weighted AND NOT DLC_SANITIZE)
  add_test(NAME test_layers_weighted.cudnn-unfused COMMAND test_layers_weighted)
  dlc_set_test(test_layers_weighted.cudnn-unfused LABELS conformance ENVIRONMENT
    DLCORE_TEST_LAYERS=$<TARGET_FILE:layers-host> DLCORE_TEST_UNFUSED=1)
endif()
