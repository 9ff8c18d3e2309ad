#include "weft/aggregation/switch/aggregation_switch.h"

#include "weft/aggregation/packet/elements.h"
#include "weft/aggregation/packet/packet.h"

namespace weft::aggregation {
namespace {

// Finds the elements of a packet that are in shared memory. Returns false if there is no such memory.
bool find_elements(Packet& packet, const SharedSlots* memory) {
  if (!packet.head.shared) return true;
  if (memory != nullptr) packet.elements = memory->elements_of(packet.head, packet.shared_elements);
  return !packet.elements.empty();
}

Head result_of(const Head& contribution) {
  Head result = contribution;
  result.kind = Kind::kResult;
  result.rank = 0;
  result.shared = false;
  return result;
}

}  // namespace

AggregationSwitch::Sender AggregationSwitch::by_address(const Address& from, std::size_t size) {
  if (from == latest_.from && changes_ == latest_.changes) return latest_.sender;
  auto found = by_source_.find(from);
  if (found == by_source_.end()) found = by_source_.find({from.ipv4, 0});
  if (found != by_source_.end()) return (latest_ = {from, changes_, found->second}).sender;
  reject_stray(Rejected::kUnknownSource, size);
  return {};
}

// Cheap checks come first: the tag is computed only for packets that pass them.
AggregationSwitch::Sender AggregationSwitch::by_header(Packet& packet, std::span<const std::byte> bytes,
                                                       const Route& from, Outbox& out) {
  if (packet.head.kind != Kind::kContribution) {
    reject_stray(Rejected::kMalformed, bytes.size());
    return {};
  }
  const auto found = by_number_.find(packet.head.job);
  if (found == by_number_.end() || packet.head.epoch != epoch_) {
    reject_stray(Rejected::kUnknownJob, bytes.size());
    send_notice(Kind::kUnknownJob, nullptr, packet.head, {&from, 1}, out);
    return {};
  }
  SwitchJob& job = *found->second;
  const bool known_source = job.is_place_of(packet.head.rank, from.peer);
  const bool complete = known_source && find_elements(packet, job.memory(packet.head.rank));
  const std::span<const std::byte> shared = packet.head.shared ? packet.elements : std::span<const std::byte>();
  if (complete && job.worker_mac(packet.head.rank).verify(bytes, shared)) return {&job, packet.head.rank};
  // The named job counts the cause, although the packet may not belong to it.
  job.counters.reject(complete ? Rejected::kForged : known_source ? Rejected::kMalformed : Rejected::kUnknownSource);
  count_stray(bytes.size());
  return {};
}

AggregationSwitch::Sender AggregationSwitch::find_sender(Packet& packet, std::span<const std::byte> bytes,
                                                         const Route& from, Outbox& out) {
  return packet.head.mode == Mode::kSwitchMl ? by_address(from.peer, bytes.size())
                                             : by_header(packet, bytes, from, out);
}

void AggregationSwitch::handle(std::span<const std::byte> bytes, const Route& from, Time now, Outbox& out) {
  std::optional<Packet> packet = decode(bytes);
  // The switch cannot answer port 0.
  if (!packet || from.peer.port == 0) return reject_stray(Rejected::kMalformed, bytes.size());
  const auto [job, rank] = find_sender(*packet, bytes, from, out);
  if (job == nullptr) return;
  ++job->counters.packets_in;
  job->counters.bytes_in += bytes.size();
  const Shape largest = full_shape(job->spec().mode, job->spec().packet_elements);
  if (packet->head.slot >= static_cast<std::uint32_t>(job->pool.slots())) {
    return job->counters.reject(Rejected::kBadSlot);
  }
  const bool too_large = packet->element_count() > largest.elements || packet->exponents.size() > largest.exponents;
  // In SwitchML mode, every packet has the job's packet size.
  const bool too_small = packet->head.mode == Mode::kSwitchMl && packet->element_count() < largest.elements;
  if (too_large || too_small) return job->counters.reject(Rejected::kBadShape);
  job->note_accepted(rank, from, now);
  aggregate(*job, rank, *packet, from, out);
}

void AggregationSwitch::aggregate(SwitchJob& job, int rank, const Packet& packet, const Route& from, Outbox& out) {
  const Head& head = packet.head;
  const std::optional<Turn> turn = job.turn_of(head);
  if (!turn) return job.counters.reject(Rejected::kWrongOperation);
  // SwitchML's operation number is already part of the turn.
  const std::uint32_t tag = head.mode == Mode::kSwitchMl ? 0 : head.operation;
  switch (job.pool.add(packet, *turn, rank, tag)) {
    case SlotPool::Outcome::kAdded:
      return;
    case SlotPool::Outcome::kCompleted:
      ++job.counters.sums;
      job.note_completed(*turn);
      return send_sum(job, head, from.peer.port, out);
    case SlotPool::Outcome::kDuplicate:
      ++job.counters.duplicates;
      return;
    case SlotPool::Outcome::kAnswer:
      ++job.counters.duplicates;
      ++job.counters.answered;
      return job.memory(rank) == nullptr ? send_in_packets(job, head, {&from, 1}, out)
                                         : send_in_memory(job, head, {&from, 1}, {&rank, 1}, out);
    case SlotPool::Outcome::kLate:
      return job.counters.reject(Rejected::kLate);
    case SlotPool::Outcome::kBadShape:
      job.counters.reject(Rejected::kBadShape);
      if (head.mode == Mode::kExtended)
        send_notice(Kind::kOperationsDiffer, &job, head, job.receivers(from.peer.port), out);
      return;
  }
}

void AggregationSwitch::send_sum(SwitchJob& job, const Head& head, std::uint16_t port, Outbox& out) {
  const std::span<const Route> all = job.receivers(port);
  const std::span<const int> sharing = job.sharing();
  const std::size_t others = all.size() - sharing.size();
  if (others > 0) send_in_packets(job, head, all.first(others), out);
  if (!sharing.empty()) send_in_memory(job, head, all.subspan(others), sharing, out);
}

void AggregationSwitch::send_in_packets(SwitchJob& job, const Head& head, std::span<const Route> to, Outbox& out) {
  const Shape shape = job.pool.shape(head.slot, head.set);
  const Head result = result_of(head);
  const std::span<std::byte> bytes = out.add(to, packet_size(result, shape));
  const Body body = write_head(bytes, result, shape);
  write_exponents(body.exponents, job.pool.exponents(head.slot, head.set));
  write_elements(body.elements, job.pool.elements(head.slot, head.set));
  if (head.mode == Mode::kExtended) job.mac.seal(bytes);
  job.counters.packets_out += to.size();
  job.counters.bytes_out += to.size() * bytes.size();
}

void AggregationSwitch::send_in_memory(SwitchJob& job, const Head& head, std::span<const Route> to,
                                       std::span<const int> sharing, Outbox& out) {
  const Shape shape = job.pool.shape(head.slot, head.set);
  if (shape.elements == 0) return send_in_packets(job, head, to, out);
  Head result = result_of(head);
  result.shared = true;
  std::span<std::byte> elements;
  for (const int rank : sharing) {
    elements = job.memory(rank)->elements_of(result, shape.elements);
    write_elements(elements, job.pool.elements(head.slot, head.set));
  }
  const std::span<std::byte> bytes = out.add(to, packet_size(result, shape), to.size() * elements.size());
  write_exponents(write_head(bytes, result, shape).exponents, job.pool.exponents(head.slot, head.set));
  job.mac.seal(bytes, elements);
  job.counters.packets_out += to.size();
  job.counters.bytes_out += to.size() * bytes.size();
}

// A notice is not longer than the packet that it answers, so that the switch cannot be used to amplify traffic.
void AggregationSwitch::send_notice(Kind kind, SwitchJob* job, const Head& head, std::span<const Route> to,
                                    Outbox& out) {
  // No field depends on the packet's sender: notices about one turn share a nonce and must be identical.
  Head notice;
  notice.kind = kind;
  notice.job = head.job;
  notice.epoch = epoch_;
  notice.slot = head.slot;
  notice.sequence = head.sequence;
  const std::span<std::byte> bytes = out.add(to, packet_size(Mode::kExtended, {}));
  (void)write_head(bytes, notice, {});
  job != nullptr ? job->mac.seal(bytes) : PacketMac().seal(bytes);
  PacketCounters& counters = job != nullptr ? job->counters : strays_;
  counters.packets_out += to.size();
  counters.bytes_out += to.size() * bytes.size();
}

void AggregationSwitch::count_stray(std::size_t bytes) {
  ++strays_.packets_in;
  strays_.bytes_in += bytes;
}

void AggregationSwitch::reject_stray(Rejected cause, std::size_t bytes) {
  count_stray(bytes);
  strays_.reject(cause);
}

}  // namespace weft::aggregation
