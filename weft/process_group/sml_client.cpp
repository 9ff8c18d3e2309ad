#include "weft/process_group/sml_client.h"

#include <dlfcn.h>

#include <stdexcept>
#include <string>

namespace weft::process_group {
namespace {

constexpr const char* kLibrary = "libweft_control.so";
constexpr const char* kFunction = "weft_control_client";

using MakeClient = control::Client* (*)(const control::ClientOptions&);

// The folder of the library that this function is in.
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
  // Its protobuf first, not the one inside torch. AddressSanitizer, whose builds have no Python part, refuses the flag.
  flags |= RTLD_DEEPBIND;
#endif
  void* library = dlopen(path.c_str(), flags);  // never closed: gRPC's threads may outlive any client
  if (library == nullptr) {
    throw std::runtime_error(std::string("weft: the switch's client cannot be loaded: ") + dlerror() +
                             "; it needs the system's gRPC (libgrpc++), which `make env` installs");
  }
  auto* function = dlsym(library, kFunction);
  if (function == nullptr) throw std::runtime_error("weft: " + path + " is of another version of weft: " + dlerror());
  return reinterpret_cast<MakeClient>(function);
}

}  // namespace

std::unique_ptr<control::Client> open_control_client(const control::ClientOptions& options) {
  static const MakeClient make = load();
  return std::unique_ptr<control::Client>(make(options));
}

}  // namespace weft::process_group
