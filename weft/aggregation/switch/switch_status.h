// Counters and status of a switch, per job and for packets without a job.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "weft/aggregation/config/job.h"
#include "weft/aggregation/packet/time.h"

namespace weft::aggregation {

// Reasons for dropping a packet. The causes before kLate apply to packets without a job or without authentication.
enum class Rejected : std::uint8_t {
  kMalformed,       // truncated, oversized, of unknown format, or from port 0
  kUnknownJob,      // the job has ended, or an earlier run of the switch admitted it
  kUnknownSource,   // not from the worker's address
  kForged,          // wrong tag
  kLate,            // belongs to a sum that all workers have received
  kBadSlot,         // outside the job's quota
  kBadShape,        // differs from the other workers' packets in size or operation
  kWrongOperation,  // its operation is not running: the packet is old, and its operation number has wrapped
};
inline constexpr std::size_t kRejectedCauses = 8;
[[nodiscard]] const char* describe(Rejected cause);  // label for metrics: "malformed", "unknown_job", …

struct PacketCounters {
  // Packets received, accepted or not. A packet that names a job but fails authentication counts as a stray, and the
  // job counts the cause. The sum of all packets_in is the number of packets that the switch received.
  std::uint64_t packets_in = 0;
  std::uint64_t packets_out = 0;
  std::uint64_t bytes_in = 0;  // UDP payload
  std::uint64_t bytes_out = 0;
  std::uint64_t sums = 0;        // completed sums
  std::uint64_t duplicates = 0;  // packets that had already been added
  std::uint64_t answered = 0;    // duplicates that were answered with the result
  std::array<std::uint64_t, kRejectedCauses> rejected{};

  [[nodiscard]] std::uint64_t rejected_for(Rejected cause) const { return rejected[static_cast<std::size_t>(cause)]; }
  void reject(Rejected cause) { ++rejected[static_cast<std::size_t>(cause)]; }
};

struct JobStatus {
  std::string name;
  std::uint64_t session = 0;
  std::uint32_t job = 0;
  Mode mode = Mode::kExtended;
  int workers = 0;
  int workers_placed = 0;  // workers whose address is known
  int packet_elements = 0;
  int slots = 0;          // quota
  int slots_busy = 0;     // slots with an incomplete sum
  std::size_t bytes = 0;  // memory of its slots
  Duration age{};
  Duration idle{};  // time since the last accepted packet, or since the admission
  PacketCounters counters;
};

// Snapshot of the whole switch.
struct Snapshot {
  std::uint64_t epoch = 0;
  int slots = 0;           // maximum of all jobs together
  int slots_assigned = 0;  // slots assigned to live jobs
  std::size_t bytes = 0;   // maximum memory for the slots of all jobs
  std::size_t bytes_assigned = 0;
  std::uint64_t jobs_admitted = 0;
  std::uint64_t jobs_refused = 0;
  std::uint64_t jobs_ended = 0;
  std::uint64_t lost_on_sending = 0;  // packets of packets_out that the kernel did not accept
  int unfiltered_ports =
      0;                  // ports with more workers than a kernel filter can name, which accept packets from any source
  PacketCounters strays;  // packets without a job
  std::vector<JobStatus> jobs;
};

}  // namespace weft::aggregation
