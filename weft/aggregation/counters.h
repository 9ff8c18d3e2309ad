// What the switch counts, for each job and for packets that belong to none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "weft/aggregation/job.h"
#include "weft/aggregation/time.h"

namespace weft::aggregation {

// Why a packet was dropped. Those above kLate belong to no job, or are not believed to.
enum class Rejected : std::uint8_t {
  kMalformed,       // truncated, oversized, not of any known format, or from port 0, where nobody can be
  kUnknownJob,      // no such job here: ended, or admitted by an earlier life of the switch
  kUnknownSource,   // from an address that is not the worker's
  kForged,          // the tag is wrong
  kLate,            // of a sum that everybody has had
  kBadSlot,         // beyond the job's quota
  kBadShape,        // not as many elements as the others sent for this sum, or of another operation
  kWrongOperation,  // of an operation that is not under way: so old that its number has come round
};
inline constexpr std::size_t kRejectedCauses = 8;
[[nodiscard]] const char* describe(Rejected cause);  // "malformed", "unknown_job", …: a metric's label

struct Counters {
  // Accepted or not. What names a job but is not believed to be of it (forged, from elsewhere) is counted among the
  // strays, and the cause by the job: all packets_in together are what the switch received.
  std::uint64_t packets_in = 0;
  std::uint64_t packets_out = 0;
  std::uint64_t bytes_in = 0;  // UDP payload
  std::uint64_t bytes_out = 0;
  std::uint64_t sums = 0;        // slots completed
  std::uint64_t duplicates = 0;  // of packets that were counted in already
  std::uint64_t answered = 0;    // duplicates that got their result again
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
  int workers_placed = 0;  // whose address is known
  int packet_elements = 0;
  int slots = 0;          // quota
  int slots_busy = 0;     // hold a sum that is not complete
  std::size_t bytes = 0;  // of memory, for its slots
  Duration age{};
  Duration idle{};  // since a packet of it was accepted, or since it was admitted
  Counters counters;
};

// Of the switch as a whole; a moment's view.
struct Snapshot {
  std::uint64_t epoch = 0;
  int slots = 0;           // of all jobs together, at most
  int slots_assigned = 0;  // to live jobs
  std::size_t bytes = 0;   // for all jobs' slots together, at most
  std::size_t bytes_assigned = 0;
  std::uint64_t jobs_admitted = 0;
  std::uint64_t jobs_refused = 0;
  std::uint64_t jobs_ended = 0;
  std::uint64_t lost_on_sending = 0;  // of all packets_out: those that the kernel did not take
  int unfiltered_ports = 0;           // with more workers than the kernel's filter can name: strangers' packets come in
  Counters strays;                    // packets that belong to no job
  std::vector<JobStatus> jobs;
};

}  // namespace weft::aggregation
