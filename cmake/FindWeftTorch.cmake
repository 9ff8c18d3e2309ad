# Finds PyTorch's C++ library and defines weft::torch.
#
# torch's own TorchConfig.cmake also searches for CUDA, MKL, protobuf and kineto, and fails or warns if they are missing. weft
# needs only the headers and three libraries. The search order is WeftTorch_ROOT, Torch_DIR, CMAKE_PREFIX_PATH
# (torch.utils.cmake_prefix_path) and the Python interpreter's site-packages (without importing torch, which takes seconds).
include(FindPackageHandleStandardArgs)

set(_weft_torch_hints ${WeftTorch_ROOT})
if(Torch_DIR)
  list(APPEND _weft_torch_hints "${Torch_DIR}/../../..")
endif()
foreach(_prefix IN LISTS CMAKE_PREFIX_PATH)
  list(APPEND _weft_torch_hints "${_prefix}/../..")
endforeach()

find_path(WeftTorch_INCLUDE_DIR ATen/core/Tensor.h HINTS ${_weft_torch_hints} PATH_SUFFIXES include NO_CACHE)
if(NOT WeftTorch_INCLUDE_DIR)
  find_package(Python QUIET COMPONENTS Interpreter)
  execute_process(
    COMMAND "${Python_EXECUTABLE}" -c
            "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    OUTPUT_VARIABLE _weft_torch_hints OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  find_path(WeftTorch_INCLUDE_DIR ATen/core/Tensor.h HINTS "${_weft_torch_hints}/include" NO_CACHE)
endif()
get_filename_component(_weft_torch_root "${WeftTorch_INCLUDE_DIR}" DIRECTORY)
set(_weft_torch_libraries)
foreach(_name IN ITEMS torch torch_cpu c10)
  find_library(WeftTorch_${_name}_LIBRARY ${_name} HINTS "${_weft_torch_root}" PATH_SUFFIXES lib NO_DEFAULT_PATH
               NO_CACHE)
  list(APPEND _weft_torch_libraries WeftTorch_${_name}_LIBRARY)
endforeach()

# Exists only in a CUDA build of torch.
find_library(WeftTorch_c10_cuda_LIBRARY c10_cuda HINTS "${_weft_torch_root}" PATH_SUFFIXES lib NO_DEFAULT_PATH NO_CACHE)

if(EXISTS "${WeftTorch_INCLUDE_DIR}/torch/headeronly/version.h")
  file(STRINGS "${WeftTorch_INCLUDE_DIR}/torch/headeronly/version.h" _weft_torch_version
       REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
  string(REGEX REPLACE "[^0-9]+([0-9]+)[^0-9]+([0-9]+)[^0-9]+([0-9]+).*" "\\1.\\2.\\3" WeftTorch_VERSION
         "${_weft_torch_version}")
endif()

find_package_handle_standard_args(WeftTorch
  REQUIRED_VARS WeftTorch_INCLUDE_DIR ${_weft_torch_libraries} VERSION_VAR WeftTorch_VERSION)

if(WeftTorch_FOUND AND NOT TARGET weft::torch)
  add_library(weft::torch INTERFACE IMPORTED)
  target_include_directories(weft::torch INTERFACE
    "${WeftTorch_INCLUDE_DIR}" "${WeftTorch_INCLUDE_DIR}/torch/csrc/api/include")
  # libtorch.so has no symbols; it loads the device libraries of a CUDA build.
  target_link_libraries(weft::torch INTERFACE
    "${WeftTorch_torch_cpu_LIBRARY}" "${WeftTorch_torch_LIBRARY}" "${WeftTorch_c10_LIBRARY}")
  if(WeftTorch_c10_cuda_LIBRARY)
    target_link_libraries(weft::torch INTERFACE "${WeftTorch_c10_cuda_LIBRARY}")
  endif()
  # The definitions that torch_cpu was built with: c10d's headers depend on them.
  target_compile_definitions(weft::torch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO USE_RPC USE_TENSORPIPE)
  target_compile_features(weft::torch INTERFACE cxx_std_20)
  get_filename_component(WeftTorch_ROOT_FOUND "${_weft_torch_root}" ABSOLUTE)
endif()
