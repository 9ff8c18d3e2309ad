# One object library per folder of weft/, all of them in one libweft.so.
#
# Folders that do not declare TORCH get no torch include path: a torch header there does not compile.
include_guard()

# weft_add_library(<folder> [TORCH] [AS_ONE] [EXCLUDE <file>...] [DEPENDS <folder or target>...])
#
# AS_ONE: a release build optimises the folder's files together, for work of some hundred nanoseconds that crosses several.
function(weft_add_library folder)
  cmake_parse_arguments(PARSE_ARGV 1 arg "TORCH;AS_ONE" "" "EXCLUDE;DEPENDS")
  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/weft/${folder}/*.cpp")
  foreach(file IN LISTS arg_EXCLUDE)
    list(REMOVE_ITEM sources "${PROJECT_SOURCE_DIR}/weft/${folder}/${file}")
  endforeach()
  if(NOT sources)
    return()
  endif()
  set(target weft_${folder})
  add_library(${target} OBJECT ${sources})
  target_include_directories(${target} PUBLIC "${PROJECT_SOURCE_DIR}")
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:weft_settings>)
  if(arg_TORCH)
    target_link_libraries(${target} PUBLIC weft::torch)
  endif()
  if(arg_AS_ONE AND CMAKE_BUILD_TYPE STREQUAL "Release")
    include(CheckIPOSupported)
    check_ipo_supported(RESULT can LANGUAGES CXX OUTPUT ignored)
    set_target_properties(${target} PROPERTIES INTERPROCEDURAL_OPTIMIZATION ${can})
    # Otherwise no function that others might replace is inlined into another.
    target_compile_options(${target} PRIVATE -fno-semantic-interposition)
  endif()
  _weft_link_dependencies(${target} ${arg_DEPENDS})
  set_property(GLOBAL APPEND PROPERTY WEFT_FOLDERS ${folder})
endfunction()

# Links each dependency and records in WEFT_OBJECTS every object library that <target> needs: CMake passes usage
# requirements through object libraries but not the objects themselves.
function(_weft_link_dependencies target)
  set(objects ${target})
  foreach(dependency IN LISTS ARGN)
    if(TARGET weft_${dependency})
      target_link_libraries(${target} PUBLIC weft_${dependency})
      get_target_property(inherited weft_${dependency} WEFT_OBJECTS)
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
    target_link_libraries(weft PRIVATE weft_${folder})
  endforeach()
  target_link_libraries(weft PRIVATE $<BUILD_INTERFACE:weft_settings> PUBLIC MPI::MPI_CXX weft::torch)
  target_include_directories(weft PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(weft PUBLIC cxx_std_20)
  # Every undefined symbol is an error here, not in the first program that loads the library. Sanitizers' own symbols
  # come from the executable.
  if(NOT WEFT_SANITIZE)
    target_link_options(weft PRIVATE -Wl,--no-undefined)
  endif()
endfunction()

# python/bindings/*.cpp as weft_bindings.so, beside libweft.so: what Python can have only through pybind11, whose headers
# are torch's own. A sanitizer build has no Python part.
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

# weft_add_compat_library(<package>): compat/<package>/*.cpp as libweft_<package>.so, beside libweft.so.
function(weft_add_compat_library package)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/compat/${package}/*.cpp")
  if(NOT sources)
    return()
  endif()
  set(target weft_${package})
  add_library(${target} SHARED ${sources})
  target_link_libraries(${target} PRIVATE weft_settings weft::weft)
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
endfunction()

# weft_add_app(<name> [<library>...]): apps/<name>.cpp as bin/<name>, a command that is installed.
function(weft_add_app name)
  set(target app_${name})
  add_executable(${target} "${PROJECT_SOURCE_DIR}/apps/${name}.cpp")
  set_target_properties(${target} PROPERTIES
    OUTPUT_NAME "${name}" RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
  target_link_libraries(${target} PRIVATE weft_settings weft::weft ${ARGN})
  set_property(GLOBAL APPEND PROPERTY WEFT_APPS ${target})
endfunction()
