// Sessions that workers have set up at a switch, and the quotas of job keys.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "weft/aggregation/packet/shared_slots.h"
#include "weft/aggregation/switch/jobs.h"
#include "weft/control/keys.h"

namespace weft::control {

// Admitted request of a worker to join a session.
struct SessionRequest {
  std::string job;  // empty for SwitchML's own clients
  std::uint64_t session = 0;
  std::uint32_t rank = 0;
  std::uint32_t workers = 0;
  aggregation::Address address;  // port 0: unknown
  int packet_elements = 0;
  aggregation::Mode mode = aggregation::Mode::kSwitchMl;
  int slots = 0;  // requested; 0: as many as possible
  // kSwitchMl: see aggregation::JobSpec.
  std::optional<std::uint8_t> first_operation{};
  bool is_switchml_client = false;  // SwitchML's own client, which sends no terms
  const JobKey* key = nullptr;      // null: admitted without a key
  std::uint32_t host = 0;           // of the requesting worker, if it is another machine
  aggregation::WorkerSalt salt{};
  std::shared_ptr<const aggregation::SharedSlots> memory{};  // shared with the worker; null: none
};

struct Placed {
  aggregation::Admission admission;
  bool changed = true;      // false if the worker only checks whether its session still exists
  std::size_t evicted = 0;  // number of idle sessions that were evicted
};

struct Refused {
  std::string reason;
  bool no_room = false;  // true: the switch has no resources left; false: the request is invalid
};

class Sessions {
 public:
  // If resources run out, join() evicts sessions that have been idle for longer than `evictable`. Live workers rejoin.
  explicit Sessions(aggregation::Jobs& jobs, aggregation::Duration evictable = std::chrono::seconds(30))
      : jobs_(jobs), evictable_(evictable) {}

  [[nodiscard]] const aggregation::SwitchLimits& limits() const { return jobs_.limits(); }

  // The first worker creates the job, and the others join it. A worker that joins again gets the same answer. After a
  // restart of the switch or an eviction, the first worker that joins creates the job again.
  [[nodiscard]] std::variant<Placed, Refused> join(const SessionRequest& request);
  // Removes a worker. Ends the session and returns true when the last worker leaves.
  bool leave(std::uint64_t session, std::uint32_t rank, const std::string& job);
  // Ends sessions that have been idle for longer than `longest`. Returns their number.
  std::size_t reclaim(aggregation::Duration longest);

 private:
  struct Record {
    std::string job;
    std::string owner;
    std::size_t bytes = 0;  // memory of its slots
    std::uint32_t workers = 0;
    int packet_elements = 0;
    aggregation::Mode mode{};
    int slots = 0;
    std::map<std::uint32_t, aggregation::Address> places;  // by rank
    std::set<std::uint32_t> left;                          // ranks that have left
  };
  using Answer = std::variant<Placed, Refused>;

  [[nodiscard]] Answer create(const SessionRequest& request);
  [[nodiscard]] Answer place(const SessionRequest& request, Record& record, const aggregation::Admission& admission);
  [[nodiscard]] std::variant<int, Refused> quota(const SessionRequest& request) const;
  // Evicts the sessions that have been idle longest until `slots` slots are free. Evicts none if that does not suffice.
  std::size_t make_room(const SessionRequest& request, int slots);
  // Evicts a session of the same owner if the owner's quota is used up.
  std::size_t make_room_in_share(const SessionRequest& request);
  // Sessions that may be evicted, the longest idle first.
  [[nodiscard]] std::vector<aggregation::JobStatus> evictable() const;
  void end(std::uint64_t session);
  void forget_ended();
  void clear_old_state(const SessionRequest& request);

  aggregation::Jobs& jobs_;
  aggregation::Duration evictable_;
  std::mutex mutex_;
  std::map<std::uint64_t, Record> records_;
};

}  // namespace weft::control
