// The sessions that workers have set up at a switch, and what each job key may have of it.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "weft/aggregation/jobs.h"
#include "weft/control/keys.h"

namespace weft::control {

// One worker's request, already admitted.
struct SetUp {
  std::string job;  // empty: SwitchML's own clients have no names
  std::uint64_t session = 0;
  std::uint32_t rank = 0;
  std::uint32_t workers = 0;
  aggregation::Address address;  // port 0: not told
  int packet_elements = 0;
  aggregation::Mode mode = aggregation::Mode::kSwitchMl;
  int slots = 0;  // wanted; 0: as many as may be
  // kSwitchMl: where the workers' operations are; see aggregation::JobSpec.
  std::optional<std::uint8_t> first_operation{};
  bool own_client = false;      // SwitchML's: it asks for no terms of ours
  const JobKey* key = nullptr;  // null: admitted without
};

struct Placed {
  aggregation::Admission admission;
  bool news = true;         // false for a worker that only asks whether its session still stands
  std::size_t evicted = 0;  // idle sessions that were ended to make room
};

struct Refused {
  std::string reason;
  bool no_room = false;  // else the request itself is wrong
};

class Sessions {
 public:
  // Where there is no room, sessions that were idle for longer than `evictable` give theirs: live ones come back.
  explicit Sessions(aggregation::Jobs& jobs, aggregation::Duration evictable = std::chrono::seconds(30))
      : jobs_(jobs), evictable_(evictable) {}

  // The first worker to come makes the job, others join it; one that comes again gets the same answer. After the switch
  // was restarted or the job was idle for too long, the first that comes again makes it anew.
  [[nodiscard]] std::variant<Placed, Refused> join(const SetUp& request);
  // Ends the session when every worker has left; whether this was the last.
  bool leave(std::uint64_t session, std::uint32_t rank, const std::string& job);
  // Ends sessions that were idle for longer; how many.
  std::size_t reclaim(aggregation::Duration longest);

 private:
  struct Record {
    std::string job;
    std::uint32_t workers = 0;
    int packet_elements = 0;
    aggregation::Mode mode{};
    int slots = 0;
    std::map<std::uint32_t, aggregation::Address> places;  // by rank
    std::set<std::uint32_t> left;                          // ranks
  };
  using Answer = std::variant<Placed, Refused>;

  [[nodiscard]] Answer create(const SetUp& request);
  [[nodiscard]] Answer place(const SetUp& request, Record& record, const aggregation::Admission& admission);
  [[nodiscard]] std::variant<int, Refused> quota(const SetUp& request) const;
  // Ends sessions, those idle longest first, until there is room for one of so many slots; none if that is not enough.
  std::size_t make_room(const SetUp& request, int slots);
  // The same until the job's share has something left.
  std::size_t make_room_in_share(const SetUp& request);
  // Sessions that may be ended for another's sake, those idle longest first.
  [[nodiscard]] std::vector<aggregation::JobStatus> evictable() const;
  void end(std::uint64_t session);
  void forget_ended();
  void clear_old_state(const SetUp& request);

  aggregation::Jobs& jobs_;
  aggregation::Duration evictable_;
  std::mutex mutex_;
  std::map<std::uint64_t, Record> records_;
};

}  // namespace weft::control
