#include "weft/aggregation/switch/switch_job.h"

#include <algorithm>

#include "weft/aggregation/packet/byte_order.h"

namespace weft::aggregation {
namespace {

// Workers are at most one operation apart, and SwitchML's clients start a few at once. A packet that seems further
// ahead is old, and its 8-bit number has wrapped.
constexpr std::int64_t kOperationsAhead = 8;

// The number nearest to `near` whose lowest bits are `low`.
template <class Signed, class Unsigned>
std::int64_t unwrap(std::int64_t near, Unsigned low) {
  return near + static_cast<Signed>(static_cast<Unsigned>(low - static_cast<Unsigned>(near)));
}

}  // namespace

SwitchJob::SwitchJob(const JobSpec& spec, const Admission& admission, SlotPool pool, Time now)
    : pool(std::move(pool)),
      mac(spec.key, {Sender::Role::kSwitch, admission.epoch, admission.job, 0, {}}),
      spec_(spec),
      admission_(admission),
      admitted_(now),
      last_packet_(now),
      places_(static_cast<std::size_t>(spec.workers)),
      salts_(places_.size()),
      worker_macs_(places_.size()),
      own_(places_.size()),
      memory_(places_.size()) {
  for (int rank = 0; rank < spec.workers; ++rank) key_worker(rank, {});
  std::copy(spec.addresses.begin(), spec.addresses.end(), places_.begin());
  // The offset keeps earlier operations positive.
  if (spec.first_operation) newest_operation_ = 256 + *spec.first_operation;
}

void SwitchJob::place(int rank, const Address& address, const WorkerSalt& salt,
                      std::shared_ptr<const SharedSlots> memory) {
  places_[static_cast<std::size_t>(rank)] = address;
  receivers_.clear();
  key_worker(rank, salt);
  std::erase(sharing_, rank);
  if (memory) sharing_.push_back(rank);
  memory_[static_cast<std::size_t>(rank)] = std::move(memory);
}

void SwitchJob::key_worker(int rank, const WorkerSalt& salt) {
  salts_[static_cast<std::size_t>(rank)] = salt;
  worker_mac(rank) = {
      spec_.key, {Sender::Role::kWorker, admission_.epoch, admission_.job, static_cast<std::uint16_t>(rank), salt}};
}

JobStatus SwitchJob::status(Time now) const {
  JobStatus status;
  status.name = spec_.name;
  status.session = spec_.session;
  status.job = admission_.job;
  status.mode = spec_.mode;
  status.workers = spec_.workers;
  status.workers_placed = static_cast<int>(std::ranges::count_if(places_, [](const auto& p) { return p.has_value(); }));
  status.packet_elements = spec_.packet_elements;
  status.slots = pool.slots();
  status.slots_busy = pool.busy();
  status.bytes = pool.bytes();
  status.age = now - admitted_;
  status.idle = idle(now);
  status.counters = counters;
  return status;
}

bool SwitchJob::is_place_of(int rank, const Address& from) const {
  if (rank >= spec_.workers) return false;
  const std::optional<Address>& place = places_[static_cast<std::size_t>(rank)];
  return place && place->ipv4 == from.ipv4 && (place->port == 0 || place->port == from.port);
}

std::span<const Route> SwitchJob::receivers(std::uint16_t port) {
  if (!receivers_.empty() && receivers_port_ == port) return receivers_;
  receivers_.clear();
  receivers_port_ = port;
  for (const bool shares : {false, true}) {
    for (std::size_t rank = 0; rank < places_.size(); ++rank) {
      const std::optional<Address>& place = places_[rank];
      if (!place || (memory_[rank] != nullptr) != shares) continue;
      receivers_.emplace_back(Address{place->ipv4, place->port != 0 ? place->port : port}, own_[rank]);
    }
  }
  return receivers_;
}

std::optional<Turn> SwitchJob::turn_of(const Head& head) const {
  if (head.mode == Mode::kExtended) return Turn{0, head.sequence};
  const auto number = static_cast<std::uint8_t>(head.operation);
  const std::int64_t operation = newest_operation_ ? unwrap<std::int8_t>(*newest_operation_, number) : 256 + number;
  if (newest_operation_ && operation > *newest_operation_ + kOperationsAhead) return std::nullopt;
  if (spec_.first_operation && operation < 256 + *spec_.first_operation)
    return std::nullopt;  // belongs to an earlier job
  return Turn{operation, sequence_of(head, operation)};
}

// The 32 bits may also wrap within an operation, so they are unwrapped against the slot's turns of this operation. The
// packet's own set comes first: the other set may already be in the next operation while a slower worker requests the
// last sum of this one.
std::uint64_t SwitchJob::sequence_of(const Head& head, std::int64_t operation) const {
  const auto sent = static_cast<std::uint32_t>(head.sequence);
  const std::uint32_t tsi = spec_.tsi_is_little_endian ? swap_bytes(sent) : sent;
  for (const int set : {int{head.set}, 1 - head.set}) {
    const Turn& turn = pool.turn(head.slot, set);
    if (turn.operation != operation) continue;
    return static_cast<std::uint64_t>(unwrap<std::int32_t>(static_cast<std::int64_t>(turn.sequence), tsi));
  }
  return (std::uint64_t{1} << 32) + tsi;  // positive offset, as for operations
}

void SwitchJob::note_completed(const Turn& turn) {
  if (spec_.mode == Mode::kExtended) return;
  newest_operation_ = std::max(newest_operation_.value_or(turn.operation), turn.operation);
}

}  // namespace weft::aggregation
