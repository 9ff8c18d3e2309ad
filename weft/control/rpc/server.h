// The switch's control plane: SwitchML's gRPC services behind the front door.
#pragma once

#include <memory>

#include "weft/aggregation/jobs.h"
#include "weft/control/counters.h"
#include "weft/control/front_door.h"
#include "weft/control/keys.h"
#include "weft/control/sessions.h"

namespace weft::control::rpc {

struct ServerOptions {
  aggregation::Address listen{0, 50099};
  std::uint32_t data_address = 0;  // told to workers; 0: the one at which they reached the control plane
  JobKeys keys;
  bool open = false;  // without keys: admit other machines too
  DoorLimits door;
  bool multihomed = false;  // without keys: workers' packets may come from elsewhere than their set-up
};

class Server {
 public:
  // Serves when it is there. `jobs` and `counters` outlive it.
  Server(ServerOptions options, aggregation::Jobs& jobs, Counters& counters);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  [[nodiscard]] std::uint16_t port() const;
  [[nodiscard]] std::size_t connections() const;
  // Workers in a barrier or a broadcast that is not complete.
  [[nodiscard]] std::size_t waiting() const;
  [[nodiscard]] Sessions& sessions();
  // Answers those who wait that the switch stops, and ends.
  void stop();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace weft::control::rpc
