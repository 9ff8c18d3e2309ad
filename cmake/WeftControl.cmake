# The switch's control plane: gRPC code generated from the .proto files, the server, and the client as a separate library.
#
# gRPC and protobuf come from the system, through pkg-config: their CMake modules differ between distributions. `make env`
# installs them. A build without them has no switch, and the backend `sml` reports this.
include_guard()
find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
  pkg_check_modules(grpcpp IMPORTED_TARGET grpc++)
  pkg_check_modules(protobuf IMPORTED_TARGET protobuf)
endif()
find_package(yaml-cpp QUIET)
find_package(spdlog QUIET)
find_package(CLI11 QUIET)
find_program(PROTOC protoc)
find_program(GRPC_CPP_PLUGIN grpc_cpp_plugin)
mark_as_advanced(PROTOC GRPC_CPP_PLUGIN)
if(grpcpp_FOUND AND protobuf_FOUND AND yaml-cpp_FOUND AND spdlog_FOUND AND CLI11_FOUND AND PROTOC
   AND GRPC_CPP_PLUGIN)
  set(WEFT_HAS_SWITCH ON)
else()
  set(WEFT_HAS_SWITCH OFF)
  message(STATUS "No weft-switch: it needs gRPC (grpc++, protoc, grpc_cpp_plugin), yaml-cpp, spdlog and CLI11")
endif()

# weft/control contains no gRPC code; weft/control/rpc does.
function(weft_add_control)
  weft_add_library(control DEPENDS text files aggregation yaml-cpp OpenSSL::Crypto)
  _weft_add_protocols()
  weft_add_library(control/rpc DEPENDS aggregation control control_protocols spdlog::spdlog)
  target_compile_definitions(weft_control_rpc PRIVATE WEFT_VERSION="${PROJECT_VERSION}")
  _weft_add_control_client(control/rpc/client.cpp control/rpc/metadata.cpp control/keys.cpp control/request_mac.cpp
                           aggregation/packet/packet_keys.cpp text/spelling.cpp)
endfunction()

function(_weft_add_protocols)
  set(source_dir "${PROJECT_SOURCE_DIR}/weft/control/rpc")
  set(output_dir "${PROJECT_BINARY_DIR}/protocols")
  file(MAKE_DIRECTORY "${output_dir}")
  foreach(name IN ITEMS switchml weft_switch)
    set(generated "${output_dir}/${name}.pb.cc" "${output_dir}/${name}.grpc.pb.cc")
    add_custom_command(OUTPUT ${generated} "${output_dir}/${name}.pb.h" "${output_dir}/${name}.grpc.pb.h"
      COMMAND "${PROTOC}" "--proto_path=${source_dir}" "--cpp_out=${output_dir}" "--grpc_out=${output_dir}"
              "--plugin=protoc-gen-grpc=${GRPC_CPP_PLUGIN}" "${name}.proto"
      DEPENDS "${source_dir}/${name}.proto" VERBATIM)
    list(APPEND sources ${generated})
  endforeach()
  add_library(weft_control_protocols OBJECT ${sources})
  target_include_directories(weft_control_protocols SYSTEM PUBLIC "${output_dir}")
  target_link_libraries(weft_control_protocols PUBLIC PkgConfig::grpcpp PkgConfig::protobuf)
  set_target_properties(weft_control_protocols PROPERTIES WEFT_OBJECTS weft_control_protocols)
endfunction()

# libweft_control.so: the client and its dependencies, with a single exported symbol.
function(_weft_add_control_client)
  list(TRANSFORM ARGN PREPEND "${PROJECT_SOURCE_DIR}/weft/" OUTPUT_VARIABLE sources)
  set(exports "${PROJECT_SOURCE_DIR}/weft/control/rpc/client.exports")
  add_library(weft_control_client SHARED ${sources})
  target_include_directories(weft_control_client PRIVATE "${PROJECT_SOURCE_DIR}")
  target_link_libraries(weft_control_client PRIVATE weft_settings weft_control_protocols yaml-cpp OpenSSL::Crypto)
  target_link_options(weft_control_client PRIVATE "-Wl,--version-script=${exports}")
  set_target_properties(weft_control_client PROPERTIES OUTPUT_NAME weft_control LINK_DEPENDS "${exports}")
  set_property(GLOBAL APPEND PROPERTY WEFT_COMPAT_TARGETS weft_control_client)
endfunction()

# apps/weft-switch as build/<preset>/bin/weft-switch.
function(weft_add_switch)
  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/apps/weft-switch/*.cpp")
  add_executable(weft_switch ${sources})
  get_target_property(objects weft_control_rpc WEFT_OBJECTS)
  target_link_libraries(weft_switch PRIVATE weft_settings ${objects} CLI11::CLI11)
  target_compile_definitions(weft_switch PRIVATE WEFT_VERSION="${PROJECT_VERSION}")
  set_target_properties(weft_switch PROPERTIES
    OUTPUT_NAME weft-switch RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
  set_property(GLOBAL APPEND PROPERTY WEFT_APPS weft_switch)
endfunction()
