// Network namespaces for the lifetime of an object, and UDP sockets inside them.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>

#include "tests/aggregation/live_job.h"
#include "weft/files/file_descriptor.h"

namespace weft::aggregation {

// CMake defines WEFT_SOURCE_DIR.
inline int namespace_script(const std::string& arguments) {
  return std::system((std::string(WEFT_SOURCE_DIR) + "/scripts/network_namespaces.sh " + arguments).c_str());
}

class Namespaces {
 public:
  // Options of scripts/network_namespaces.sh.
  Namespaces(int workers, const std::string& options) : name_("weft-" + std::to_string(getpid())) {
    if (namespace_script("up " + name_ + " " + std::to_string(workers) + " " + options) != 0) {
      throw std::runtime_error("cannot create the network namespaces");
    }
  }
  ~Namespaces() { namespace_script("down " + name_); }
  Namespaces(const Namespaces&) = delete;
  Namespaces& operator=(const Namespaces&) = delete;

  [[nodiscard]] static bool possible() { return namespace_script("possible 2>/dev/null") == 0; }

  [[nodiscard]] std::unique_ptr<UdpTransport> switch_transport() const {
    UdpOptions options;
    options.local = *Address::parse("10.77.0.1:48864");
    options.for_switch = true;
    return transport_in("switch", options);
  }
  [[nodiscard]] std::unique_ptr<UdpTransport> worker_transport(int rank) const {
    UdpOptions options;
    options.local = *Address::parse("10.77.0." + std::to_string(10 + rank) + ":4000");
    return transport_in(std::string("w").append(std::to_string(rank)), options);
  }

  // Runs `body` in a new thread that enters the namespace.
  void run_in(const std::string& which, const std::function<void()>& body) const {
    std::exception_ptr error;
    std::thread([&] {
      try {
        const files::FileDescriptor file(::open(("/run/netns/" + name_ + "-" + which).c_str(), O_RDONLY | O_CLOEXEC));
        if (file.get() < 0 || ::setns(file.get(), CLONE_NEWNET) != 0) {
          throw std::system_error(errno, std::generic_category(), "namespace " + which);
        }
        body();
      } catch (...) {
        error = std::current_exception();
      }
    }).join();
    if (error != nullptr) std::rethrow_exception(error);
  }

 private:
  // A socket stays in the namespace in which it was created.
  [[nodiscard]] std::unique_ptr<UdpTransport> transport_in(const std::string& which, const UdpOptions& options) const {
    std::unique_ptr<UdpTransport> transport;
    run_in(which, [&] { transport = std::make_unique<UdpTransport>(options); });
    return transport;
  }

  std::string name_;
};

}  // namespace weft::aggregation
