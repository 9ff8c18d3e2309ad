// Thread-safe table of a software switch's jobs: a control plane admits and ends them while the event loop handles
// packets.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "weft/aggregation/config/job.h"
#include "weft/aggregation/packet/time.h"
#include "weft/aggregation/switch/refusal.h"
#include "weft/aggregation/switch/switch_status.h"

namespace weft::aggregation {

class AggregationSwitch;
class Outbox;
class SharedSlots;

struct SwitchLimits {
  int jobs = 64;
  int slots = 16384;                         // total of all jobs
  int slots_per_job = 2048;                  // maximum quota of a job
  std::size_t bytes = std::size_t{1} << 30;  // total memory of all jobs' slots
  std::uint16_t port = 48864;                // passed to workers in the Admission
  // Number of consecutive ports, starting at `port`. If it is above 1, extended jobs are distributed over all ports but
  // the first, so that a flood fills only the buffer of its own port. SwitchML's clients use one port; its switches
  // listen on 16.
  int ports = 1;
  int largest_payload = 65'507;  // bytes of UDP payload; the maximum of IPv4
};

// All functions are thread-safe. None blocks for longer than the event loop takes for a batch of packets.
class Jobs {
 public:
  // `epoch` identifies this run of the switch. Packet keys depend on it, so it must be fresh: use random_epoch().
  explicit Jobs(const SwitchLimits& limits, std::uint64_t epoch);
  ~Jobs();
  Jobs(const Jobs&) = delete;
  Jobs& operator=(const Jobs&) = delete;

  [[nodiscard]] std::uint64_t epoch() const { return epoch_; }
  [[nodiscard]] const SwitchLimits& limits() const { return limits_; }

  // Reserves empty slots for a job. A refusal changes only the count of refusals. A live session is refused: call end()
  // first, as SwitchML's rank 0 "clears old state".
  [[nodiscard]] std::variant<Admission, Refusal> admit(const JobSpec& spec, Time now);

  // Sets the address and salt of worker `rank` of a live job, and the memory that it shares with the switch (extended
  // jobs only); the last call counts. Returns an empty text, or the reason why the call failed. The switch drops
  // packets from workers without an address (kUnknownSource).
  [[nodiscard]] std::string place_worker(std::uint64_t session, int rank, const Address& address,
                                         const WorkerSalt& salt = {},
                                         std::shared_ptr<const SharedSlots> memory = nullptr);
  // Whether the switch shares memory with worker `rank`.
  [[nodiscard]] bool shares_memory(std::uint64_t session, int rank) const;

  // The admission of a live session, for workers that join late or again; nullopt if there is no such session.
  [[nodiscard]] std::optional<Admission> admission(std::uint64_t session) const;

  // Removes a job and its sums; returns false if there is no such job. Workers that still send receive a notice.
  bool end(std::uint64_t session);
  // Ends all jobs that have been idle for longer than `longest`. Returns their sessions.
  std::vector<std::uint64_t> end_idle(Duration longest, Time now);

  [[nodiscard]] Snapshot snapshot(Time now) const;

  // Sets the function that is called, with the lock held, whenever changes() changes; empty: none.
  void on_change(std::function<void()> callback);
  // Returns a number that changes whenever a job or worker is added, moved or removed.
  [[nodiscard]] std::uint64_t changes() const;
  // Addresses of all workers whose job uses this port.
  [[nodiscard]] std::vector<Address> sources(std::uint16_t port) const;

  // Handles a packet and adds the answers to `out`. For the event loop.
  void handle(std::span<const std::byte> packet, const Route& from, Time now, Outbox& out);

  // Counts answers that could not be sent.
  void note_lost(std::uint64_t packets);
  // Sets the number of ports that accept packets from any source although they have jobs.
  void note_unfiltered(int ports);

  // Calls `body(AggregationSwitch&)` with the lock held, for loops that handle many packets.
  template <class Body>
  void with_switch(Body&& body) {
    const std::lock_guard lock(mutex_);
    body(*switch_);
  }

 private:
  // Calls `body` with the lock held and then the change callback if the jobs changed.
  template <class Body>
  auto change(Body&& body);

  const SwitchLimits limits_;
  const std::uint64_t epoch_;
  mutable std::mutex mutex_;
  std::unique_ptr<AggregationSwitch> switch_;
  std::function<void()> on_change_;
};

// Random number that identifies a run of the switch; never 0.
[[nodiscard]] std::uint64_t random_epoch();

}  // namespace weft::aggregation
