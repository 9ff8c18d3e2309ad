// A job of the switch: who its workers are and how they talk; what a control plane asks for and what it is granted.
//
// Words: a *job* is a group of workers that sum together for as long as they live. SwitchML's header calls each single
// allreduce a job and numbers it with 8 bits; here that number is the *operation's*.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weft/aggregation/address.h"

namespace weft::aggregation {

// Secret of one job; extended packets carry a tag made with it.
using PacketKey = std::array<std::uint8_t, 16>;

enum class Mode : std::uint8_t {
  kSwitchMl,  // byte for byte SwitchML's UDP format: 64 or 256 elements, up to 32 workers, no authentication
  kExtended,  // ours: up to the MTU, up to 1023 workers, 64-bit sequence, a tag on every packet
};

struct JobSpec {
  std::string name;           // how status and metrics call it: the name of its key
  std::uint64_t session = 0;  // picked by rank 0; two live jobs have different ones
  Mode mode = Mode::kExtended;
  int workers = 0;
  int packet_elements = 256;  // per packet at most; kSwitchMl: 64 or 256; kExtended: a multiple of 64
  int slots = 0;              // wanted, may be fewer; 0: as many as a job may have
  PacketKey key{};            // kExtended only
  // kSwitchMl: number of the first operation, where all workers know it; packets far from it are of an earlier job.
  // After a restart of the switch: of the one before any worker's present one, because workers are one apart at most.
  std::optional<std::uint8_t> first_operation{};
  // kSwitchMl: the tsi is opaque to a switch that does not order packets by it, so SwitchML's own clients send it as it
  // lies in their memory; ours send it in network order.
  bool tsi_is_little_endian = false;
  // By rank; may be empty or shorter and be completed by Jobs::place_worker. Port 0: any source port of that host is
  // this worker's, and results go to the port that the last packet of the sum came from, as a SwitchML switch does it.
  std::vector<Address> addresses{};
};

// What every worker needs to know of an admitted job.
struct Admission {
  std::uint64_t epoch = 0;           // of the switch's life; another one means that all its sums are gone
  std::uint32_t job = 0;             // in the header of extended packets
  int slots = 0;                     // a worker's window is at most this
  std::uint16_t port = 0;            // UDP port of the switch for this job
  std::uint8_t first_operation = 0;  // kSwitchMl: as in the JobSpec

  friend bool operator==(const Admission&, const Admission&) = default;
};

enum class RefusalReason : std::uint8_t {
  kBadWorkers,         // fewer than 1, or more than the mode carries
  kBadPacketElements,  // not a size of the mode
  kBadSlots,
  kSessionTaken,  // a live job has this session
  kAddressTaken,  // a live kSwitchMl job has a worker there: packets could not be told apart
  kTooManyJobs,
  kNoSlotsLeft,
  kNoMemoryLeft,  // for so many slots of so many elements
};
[[nodiscard]] const char* describe(RefusalReason reason);

struct Refusal {
  RefusalReason reason = RefusalReason::kBadWorkers;
  std::string text;  // what came, what was expected, what to do
};

}  // namespace weft::aggregation
