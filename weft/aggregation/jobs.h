// The jobs of a software switch, thread-safe: a control plane admits and ends them while the event loop feeds packets.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "weft/aggregation/counters.h"
#include "weft/aggregation/job.h"
#include "weft/aggregation/time.h"

namespace weft::aggregation {

class AggregationSwitch;
class Outbox;

struct SwitchLimits {
  int jobs = 64;
  int slots = 16384;                         // of all jobs together
  int slots_per_job = 2048;                  // a job's quota at most
  std::size_t bytes = std::size_t{1} << 30;  // of all jobs' slots together: packets may be large
  std::uint16_t port = 48864;                // told to workers in the Admission
  // Ports from `port` on. Above 1, extended jobs are spread over all but the first: a flood of one job, or of
  // strangers, then fills only its own port's buffer. SwitchML's clients know one port; its switches listen on 16.
  int ports = 1;
  int largest_payload = 65'507;  // bytes of UDP payload; what IPv4 can carry at most
};

// Every function may be called from any thread; none blocks for longer than a batch of packets takes.
class Jobs {
 public:
  // `epoch` tells one life of the switch from the next; random_epoch() for a daemon, anything for a test.
  explicit Jobs(const SwitchLimits& limits, std::uint64_t epoch);
  ~Jobs();
  Jobs(const Jobs&) = delete;
  Jobs& operator=(const Jobs&) = delete;

  [[nodiscard]] std::uint64_t epoch() const { return epoch_; }
  [[nodiscard]] const SwitchLimits& limits() const { return limits_; }

  // Sets slots aside for a job, all of them empty. A refusal changes nothing but the count of refusals. Admitting a
  // session that is live is a refusal: end() it first, as SwitchML's rank 0 "clears old state".
  [[nodiscard]] std::variant<Admission, Refusal> admit(const JobSpec& spec, Time now);

  // Tells where worker `rank` of a live job is; the last call counts. Empty if all is well, else why not.
  // Packets of a worker without a place are rejected as of an unknown source.
  [[nodiscard]] std::string place_worker(std::uint64_t session, int rank, const Address& address);

  // What admit() granted to a live session; nothing if there is none: a worker that comes late, or comes again.
  [[nodiscard]] std::optional<Admission> admission(std::uint64_t session) const;

  // Forgets a job and its sums; false if there is none. Workers that still send get a notice that it is gone.
  bool end(std::uint64_t session);
  // Ends all jobs that have been idle for longer; their sessions.
  std::vector<std::uint64_t> end_idle(Duration longest, Time now);

  [[nodiscard]] Snapshot snapshot(Time now) const;

  // Is called, with the lock held, whenever changes() changes; empty: nobody is told.
  void watch(std::function<void()> watcher);
  // Changes whenever a job or a worker comes, moves or goes.
  [[nodiscard]] std::uint64_t changes() const;
  // The places of all workers whose job has this port.
  [[nodiscard]] std::vector<Address> sources(std::uint16_t port) const;

  // The data plane: one packet in, any number out. For the event loop.
  void handle(std::span<const std::byte> packet, const Route& from, Time now, Outbox& out);

  // So many answers did not leave.
  void note_lost(std::uint64_t packets);
  // So many ports take packets from anywhere, though their workers are known.
  void note_unfiltered(int ports);

  // For a loop that hands in many packets: locks once for all that `body(AggregationSwitch&)` does.
  template <class Body>
  void with_switch(Body&& body) {
    const std::lock_guard lock(mutex_);
    body(*switch_);
  }

 private:
  // Does that with the lock held, then tells the watcher if anything changed by it.
  template <class Body>
  auto change(Body&& body);

  const SwitchLimits limits_;
  const std::uint64_t epoch_;
  mutable std::mutex mutex_;
  std::unique_ptr<AggregationSwitch> switch_;
  std::function<void()> watcher_;
};

// Differs between any two starts of a switch; never 0.
[[nodiscard]] std::uint64_t random_epoch();

}  // namespace weft::aggregation
