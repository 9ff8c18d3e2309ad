// A job of the switch: the specification that a control plane requests and the admission that the switch grants.
//
// A *job* is a group of workers that sum together during their lifetime. SwitchML's header calls each allreduce a job
// and numbers it with 8 bits; weft calls that number the *operation number*.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weft/aggregation/packet/address.h"
#include "weft/aggregation/packet/packet.h"
#include "weft/aggregation/packet/packet_keys.h"

namespace weft::aggregation {

struct JobSpec {
  std::string name;           // name in status and metrics: the name of its key
  std::uint64_t session = 0;  // chosen by rank 0; unique among live jobs
  Mode mode = Mode::kExtended;
  int workers = 0;
  int packet_elements = 256;  // maximum per packet; kSwitchMl: 64 or 256; kExtended: a multiple of 64
  int slots = 0;              // requested; the switch may grant fewer; 0: the maximum per job
  SessionKey key{};           // kExtended only
  // kSwitchMl: number of the first operation, if all workers know it; packets far from it belong to an earlier job.
  // After a restart of the switch: one less than any worker's current operation, because workers are at most one apart.
  std::optional<std::uint8_t> first_operation{};
  // kSwitchMl: SwitchML's own clients send the tsi in little-endian order, because their switch treats it as opaque.
  // weft's clients send it in network order.
  bool tsi_is_little_endian = false;
  // By rank; may be empty or shorter, and Jobs::place_worker completes it. Port 0: any source port of that host belongs
  // to this worker, and results go to the source port of the sum's last packet, as with a SwitchML switch.
  std::vector<Address> addresses{};
};

// The facts about an admitted job that every worker needs.
struct Admission {
  std::uint64_t epoch = 0;           // identifies a run of the switch; a change means that all sums are lost
  std::uint32_t job = 0;             // job number in the header of extended packets
  int slots = 0;                     // upper limit of a worker's window
  std::uint16_t port = 0;            // UDP port of the switch for this job
  std::uint8_t first_operation = 0;  // kSwitchMl: as in the JobSpec
  bool shared = false;               // the switch uses the memory that this worker offered (shared_slots.h)

  friend bool operator==(const Admission&, const Admission&) = default;
};

}  // namespace weft::aggregation
