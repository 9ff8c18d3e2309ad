# One object library per folder of weft/, all of them in one libweft.so.
#
# Folders that do not declare TORCH get no torch include path, so they cannot include its headers.
include_guard()

# torch's headers take seven seconds per source file, most of it for templates that each file instantiates again. Sources that
# include them share one precompiled header and compile in unity batches, which takes a fraction of the time.
option(WEFT_FAST_BUILD "Compile torch folders in unity batches with a precompiled header" ON)
if(WEFT_FAST_BUILD)
  add_library(weft_torch_pch OBJECT "${PROJECT_SOURCE_DIR}/cmake/torch_pch.cpp")
  target_link_libraries(weft_torch_pch PRIVATE weft_settings weft::torch)
  target_precompile_headers(weft_torch_pch PRIVATE
    <ATen/core/Tensor.h> <ATen/core/dispatch/Dispatcher.h> <torch/custom_class.h> <torch/library.h>
    <torch/csrc/autograd/custom_function.h>)
endif()

# weft_use_torch_pch(<target>): lets a target that links weft::torch use the precompiled header. GCC accepts it only for
# equal code-generation flags, so executables compile with -fPIC, as libraries do, instead of -fPIE.
function(weft_use_torch_pch target)
  if(NOT WEFT_FAST_BUILD)
    return()
  endif()
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE")
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIC)
  endif()
  target_precompile_headers(${target} REUSE_FROM weft_torch_pch)
endfunction()

# weft_add_library(<folder> [TORCH] [AS_ONE] [WITH <subfolder>...] [EXCLUDE <file>...] [DEPENDS <folder or target>...])
#
# Defines the target weft_<folder>, with underscores for slashes. A folder without sources is a header-only library.
# WITH: the sources of these subfolders belong to the same library.
# AS_ONE: a release build optimises the files together (LTO), for paths of a few hundred nanoseconds that cross files.
function(weft_add_library folder)
  cmake_parse_arguments(PARSE_ARGV 1 arg "TORCH;AS_ONE" "" "WITH;EXCLUDE;DEPENDS")
  set(patterns "${PROJECT_SOURCE_DIR}/weft/${folder}/*.cpp")
  foreach(subfolder IN LISTS arg_WITH)
    list(APPEND patterns "${PROJECT_SOURCE_DIR}/weft/${folder}/${subfolder}/*.cpp")
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS ${patterns})
  foreach(file IN LISTS arg_EXCLUDE)
    list(REMOVE_ITEM sources "${PROJECT_SOURCE_DIR}/weft/${folder}/${file}")
  endforeach()
  _weft_target(target "${folder}")
  if(NOT sources)
    add_library(${target} INTERFACE)
    target_include_directories(${target} INTERFACE "${PROJECT_SOURCE_DIR}")
    set_target_properties(${target} PROPERTIES WEFT_OBJECTS "")
    return()
  endif()
  if(arg_TORCH AND WEFT_FAST_BUILD)
    _weft_batch_sources(sources ${target} ${sources})
  endif()
  add_library(${target} OBJECT ${sources})
  target_include_directories(${target} PUBLIC "${PROJECT_SOURCE_DIR}")
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:weft_settings>)
  if(arg_TORCH)
    target_link_libraries(${target} PUBLIC weft::torch)
    weft_use_torch_pch(${target})
  endif()
  if(arg_AS_ONE AND CMAKE_BUILD_TYPE STREQUAL "Release")
    include(CheckIPOSupported)
    check_ipo_supported(RESULT can LANGUAGES CXX OUTPUT ignored)
    set_target_properties(${target} PROPERTIES INTERPROCEDURAL_OPTIMIZATION ${can})
    # Without this flag, GCC does not inline functions that another library could replace.
    target_compile_options(${target} PRIVATE -fno-semantic-interposition)
  endif()
  _weft_link_dependencies(${target} ${arg_DEPENDS})
  set_property(GLOBAL APPEND PROPERTY WEFT_FOLDERS ${folder})
endfunction()

# weft_add_kernels(<folder>): compiles the folder once per instruction set, with the flags and macros that ATen uses for its own
# kernels. The sources are in an inline namespace CPU_CAPABILITY, and code elsewhere selects an instruction set at run time.
function(weft_add_kernels folder)
  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/weft/${folder}/*.cpp")
  set(flags_DEFAULT "")
  set(capabilities DEFAULT)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    list(APPEND capabilities AVX2 AVX512)
    set(flags_AVX2 -mavx2 -mfma -mf16c)
    set(flags_AVX512 ${flags_AVX2} -mavx512f -mavx512bw -mavx512vl -mavx512dq)
  endif()
  foreach(capability IN LISTS capabilities)
    _weft_target(target "${folder}/${capability}")
    add_library(${target} OBJECT ${sources})
    target_include_directories(${target} PUBLIC "${PROJECT_SOURCE_DIR}")
    target_compile_definitions(${target} PRIVATE CPU_CAPABILITY=${capability} CPU_CAPABILITY_${capability})
    target_compile_options(${target} PRIVATE ${flags_${capability}} -O3 -Wno-uninitialized -Wno-maybe-uninitialized)
    target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:weft_settings> weft::torch)
    set_property(GLOBAL APPEND PROPERTY WEFT_FOLDERS "${folder}/${capability}")
  endforeach()
endfunction()

# Sets <variable> to generated sources that include up to eight of the given ones each. CMake's UNITY_BUILD includes them by
# absolute path, so a clone in another folder could not reuse ccache's objects.
function(_weft_batch_sources variable target)
  set(batches "")
  list(LENGTH ARGN count)
  math(EXPR last "${count} - 1")
  foreach(begin RANGE 0 ${last} 8)
    list(SUBLIST ARGN ${begin} 8 sources)
    set(text "")
    foreach(source IN LISTS sources)
      cmake_path(RELATIVE_PATH source BASE_DIRECTORY "${PROJECT_SOURCE_DIR}")
      string(APPEND text "#include \"${source}\"\n")
    endforeach()
    set(batch "${PROJECT_BINARY_DIR}/batches/${target}_${begin}.cpp")
    file(CONFIGURE OUTPUT "${batch}" CONTENT "${text}" @ONLY)
    list(APPEND batches "${batch}")
  endforeach()
  set(${variable} ${batches} PARENT_SCOPE)
endfunction()

# weft_add_group(<folder> <subfolder>...): the target weft_<folder> stands for all of its subfolders.
function(weft_add_group folder)
  _weft_target(target "${folder}")
  add_library(${target} INTERFACE)
  list(TRANSFORM ARGN PREPEND "${folder}/" OUTPUT_VARIABLE folders)
  foreach(subfolder IN LISTS folders)
    _weft_target(part "${subfolder}")
    target_link_libraries(${target} INTERFACE ${part})
    get_target_property(inherited ${part} WEFT_OBJECTS)
    list(APPEND objects ${inherited})
  endforeach()
  list(REMOVE_DUPLICATES objects)
  set_target_properties(${target} PROPERTIES WEFT_OBJECTS "${objects}")
endfunction()

function(_weft_target variable folder)
  string(REPLACE "/" "_" name "${folder}")
  set(${variable} weft_${name} PARENT_SCOPE)
endfunction()

# Links each dependency and records in WEFT_OBJECTS every object library that <target> needs: CMake propagates usage
# requirements through object libraries, but not the objects themselves.
function(_weft_link_dependencies target)
  set(objects ${target})
  foreach(dependency IN LISTS ARGN)
    _weft_target(folder "${dependency}")
    if(TARGET ${folder})
      target_link_libraries(${target} PUBLIC ${folder})
      get_target_property(inherited ${folder} WEFT_OBJECTS)
      list(APPEND objects ${inherited})
    elseif(TARGET ${dependency})
      target_link_libraries(${target} PUBLIC ${dependency})
    else()
      message(FATAL_ERROR "${target} depends on '${dependency}', which is neither a weft folder above it nor a target")
    endif()
  endforeach()
  list(REMOVE_DUPLICATES objects)
  set_target_properties(${target} PROPERTIES WEFT_OBJECTS "${objects}")
endfunction()

# libweft.so (weft::weft): the objects of every folder added so far.
function(weft_add_shared_library)
  get_property(folders GLOBAL PROPERTY WEFT_FOLDERS)
  add_library(weft SHARED)
  add_library(weft::weft ALIAS weft)
  foreach(folder IN LISTS folders)
    _weft_target(part "${folder}")
    target_link_libraries(weft PRIVATE ${part})
  endforeach()
  target_link_libraries(weft PRIVATE $<BUILD_INTERFACE:weft_settings> PUBLIC MPI::MPI_CXX weft::torch)
  target_include_directories(weft PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(weft PUBLIC cxx_std_20)
  # Report undefined symbols when linking, not in the first program that loads the library. A sanitizer's symbols come from
  # the executable.
  if(NOT WEFT_SANITIZE)
    target_link_options(weft PRIVATE -Wl,--no-undefined)
  endif()
endfunction()

# python/bindings/*.cpp as weft_bindings.so, next to libweft.so: the functions that need pybind11, whose headers come with
# torch. A sanitizer build has no Python part.
function(weft_add_bindings)
  if(WEFT_SANITIZE)
    return()
  endif()
  find_package(Python REQUIRED COMPONENTS Interpreter Development.Module)
  get_filename_component(torch_lib_dir "${WeftTorch_c10_LIBRARY}" DIRECTORY)
  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/python/bindings/*.cpp")
  Python_add_library(weft_bindings MODULE ${sources})
  set_target_properties(weft_bindings PROPERTIES PREFIX "" SUFFIX ".so" CXX_VISIBILITY_PRESET hidden)
  target_link_libraries(weft_bindings PRIVATE weft_settings weft::weft "${torch_lib_dir}/libtorch_python.so")
  set_property(GLOBAL APPEND PROPERTY WEFT_COMPAT_TARGETS weft_bindings)
endfunction()

# weft_add_compat_library(<package>): compat/<package>/*.cpp as libweft_<package>.so, next to libweft.so.
function(weft_add_compat_library package)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/compat/${package}/*.cpp")
  if(NOT sources)
    return()
  endif()
  set(target weft_${package})
  add_library(${target} SHARED ${sources})
  target_link_libraries(${target} PRIVATE weft_settings weft::weft)
  weft_use_torch_pch(${target})
  set_property(GLOBAL APPEND PROPERTY WEFT_COMPAT_TARGETS ${target})
endfunction()

# weft_add_program(<source> <output folder> [<library>...]): one executable from one source.
function(weft_add_program source folder)
  cmake_path(GET source STEM name)
  cmake_path(RELATIVE_PATH source BASE_DIRECTORY "${PROJECT_SOURCE_DIR}/${folder}" OUTPUT_VARIABLE relative)
  cmake_path(GET relative PARENT_PATH parent)
  string(MAKE_C_IDENTIFIER "${folder}_${parent}_${name}" target)
  add_executable(${target} "${source}")
  set_target_properties(${target} PROPERTIES
    OUTPUT_NAME "${name}" RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/${folder}")
  target_link_libraries(${target} PRIVATE weft_settings weft::weft ${ARGN})
  weft_use_torch_pch(${target})
endfunction()

# weft_add_app(<name> [<library>...]): apps/<name>/*.cpp as bin/<name>, a command that is installed.
function(weft_add_app name)
  set(target app_${name})
  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/apps/${name}/*.cpp")
  add_executable(${target} ${sources})
  set_target_properties(${target} PROPERTIES
    OUTPUT_NAME "${name}" RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
  target_link_libraries(${target} PRIVATE weft_settings weft::weft ${ARGN})
  weft_use_torch_pch(${target})
  set_property(GLOBAL APPEND PROPERTY WEFT_APPS ${target})
endfunction()
