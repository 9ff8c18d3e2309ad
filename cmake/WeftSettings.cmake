# Compiler settings that every target of the project shares.
include_guard()
include(GNUInstallDirs)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
# Hide only inline functions: exceptions and torch's registries cross the library boundary by type.
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

find_program(CCACHE ccache)
mark_as_advanced(CCACHE)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Relative paths let a fresh clone reuse the cache of an earlier one. The sloppiness settings permit caching of sources
  # that use a precompiled header.
  set(CMAKE_CXX_COMPILER_LAUNCHER
    "${CMAKE_COMMAND}" -E env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime "${CCACHE}")
endif()

# Warnings and sanitizers apply to our own targets only, not to projects that link an installed weft.
add_library(weft_settings INTERFACE)
# -fpch-preprocess: ccache can then cache files that use a precompiled header.
target_compile_options(weft_settings INTERFACE -Wall -Wextra -fpch-preprocess)
if(WEFT_SANITIZE)
  target_compile_options(weft_settings INTERFACE
    "-fsanitize=${WEFT_SANITIZE}" -fno-omit-frame-pointer -fno-sanitize-recover=undefined)
  target_link_options(weft_settings INTERFACE "-fsanitize=${WEFT_SANITIZE}")
endif()
