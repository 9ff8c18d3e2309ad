#include "weft/process_group/sml/load_control_client.h"

#include <dlfcn.h>

#include <stdexcept>
#include <string>

namespace weft::process_group {
namespace {

constexpr const char* kLibrary = "libweft_control.so";
constexpr const char* kFunction = "weft_control_client";

using MakeClient = aggregation::ControlClient* (*)(const aggregation::ControlClientOptions&);

// Folder of the library that contains this function.
std::string own_folder() {
  Dl_info found{};
  if (dladdr(reinterpret_cast<const void*>(&open_control_client), &found) == 0 || found.dli_fname == nullptr) return "";
  const std::string path = found.dli_fname;
  return path.substr(0, path.rfind('/') + 1);
}

MakeClient load() {
  const std::string path = own_folder() + kLibrary;
  int flags = RTLD_NOW | RTLD_LOCAL;
#ifndef __SANITIZE_ADDRESS__
  // Prefers the library's protobuf to torch's. AddressSanitizer does not support the flag; its builds have no Python
  // part.
  flags |= RTLD_DEEPBIND;
#endif
  void* library = dlopen(path.c_str(), flags);  // never closed: gRPC's threads may outlive any client
  if (library == nullptr) {
    throw std::runtime_error(std::string("weft: cannot load the switch's client: ") + dlerror() +
                             "; it needs the system's gRPC (libgrpc++), which `make env` installs");
  }
  auto* function = dlsym(library, kFunction);
  if (function == nullptr)
    throw std::runtime_error("weft: " + path + " belongs to another version of weft (" + dlerror() +
                             "); reinstall weft");
  return reinterpret_cast<MakeClient>(function);
}

}  // namespace

std::unique_ptr<aggregation::ControlClient> open_control_client(const aggregation::ControlClientOptions& options) {
  static const MakeClient make = load();
  return std::unique_ptr<aggregation::ControlClient>(make(options));
}

}  // namespace weft::process_group
