#include "weft/aggregation/worker/worker.h"

#include <algorithm>
#include <utility>

#include "weft/partition/scramble.h"

namespace weft::aggregation {
namespace {

constexpr Time kNever = Time::max();

}  // namespace

Worker::Worker(const WorkerIdentity& identity, const Admission& admission, const RetransmissionOptions& retransmission)
    : identity_(identity),
      options_(retransmission),
      round_trip_(retransmission),
      slots_(static_cast<std::size_t>(identity.layout.window)),
      loss_detector_(slots_.size(), retransmission.reordering_threshold),
      first_operation_(admission.first_operation),
      next_due_(kNever) {
  use_admission(admission);
  shares_ = admission.shared && !identity.memory.empty();
  // Packets of the same turn are adjacent in memory, so that a system call gathers fewer pieces.
  const SumLayout& layout = identity.layout;
  const std::size_t largest = packet_size(layout.mode, full_shape(layout.mode, layout.packet_elements));
  packets_ = std::make_unique_for_overwrite<std::byte[]>(2 * slots_.size() * largest);
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    slots_[i].sent[0].memory = packets_.get() + i * largest;
    slots_[i].sent[1].memory = packets_.get() + (slots_.size() + i) * largest;
  }
}

void Worker::begin(SumStream& operation, Time now, Outbox& out) {
  operation_ = &operation;
  operations_differ_ = std::exchange(next_operation_differs_, false);
  silent_ = false;
  last_progress_ = now;
  ++operations_;
  // Two identical calls in a row must also differ, because a worker may be one call behind.
  fingerprint_ = operation.fingerprint() ^ static_cast<std::uint32_t>(partition::scramble(operations_));
  waiting_ = operation.slots();
  for (int slot = 0; slot < operation.slots(); ++slot) send_next(slot, now, out);
}

Head Worker::head_of(int slot, std::uint64_t sequence) const {
  Head head;
  head.mode = identity_.layout.mode;
  head.slot = static_cast<std::uint32_t>(slot);
  head.set = sequence & 1U;
  head.sequence = sequence;
  head.job = admission_.job;
  head.epoch = admission_.epoch;
  head.rank = static_cast<std::uint16_t>(identity_.rank);
  head.operation = head.mode == Mode::kExtended ? fingerprint_ : operation_number();
  return head;
}

void Worker::send_next(int index, Time now, Outbox& out) {
  WorkerSlot& slot = slots_[static_cast<std::size_t>(index)];
  const std::uint64_t sequence = identity_.first_turn + slot.turns;
  ++slot.turns;
  WorkerSlot::SentPacket& packet = slot.last();
  packet.shape = operation_->shape(index);
  packet.head = head_of(index, sequence);
  packet.head.shared = shares_ && packet.shape.elements > 0;
  packet.size = packet_size(packet.head, packet.shape);
  Body body = write_head(packet.bytes(), packet.head, packet.shape);
  if (packet.head.shared) body.elements = shared_elements(packet);
  operation_->fill(index, body);
  seal(packet);
  slot.waiting = true;
  slot.tries = 0;
  slot.first_sent_at = slot.sent_at = now;
  slot.due = now + round_trip_.timeout(0);
  next_due_ = std::min(next_due_, slot.due);
  loss_detector_.sent(static_cast<std::size_t>(index));
  transmit(packet, out);
}

void Worker::transmit(const WorkerSlot::SentPacket& packet, Outbox& out) {
  out.add_kept(identity_.switch_address, packet.bytes(), packet.head.shared ? 4 * packet.shape.elements : 0);
  ++counts_.sent;
}

bool Worker::is_ours(const Packet& packet, std::span<const std::byte> bytes) {
  const Head& head = packet.head;
  if (head.mode != identity_.layout.mode) return false;
  if (head.mode == Mode::kSwitchMl || head.kind == Kind::kUnknownJob) return true;
  return head.job == admission_.job && head.epoch == admission_.epoch && head.kind != Kind::kContribution &&
         switch_mac_.verify(bytes, head.shared ? packet.elements : std::span<const std::byte>());
}

void Worker::handle(std::span<const std::byte> bytes, Time now, Outbox& out) {
  ++counts_.received;
  std::optional<Packet> packet = decode(bytes);
  if (packet && packet->head.shared) {
    packet->elements = identity_.memory.elements_of(packet->head, packet->shared_elements);
    if (packet->elements.empty()) packet.reset();
  }
  if (!packet || !is_ours(*packet, bytes)) {
    ++counts_.rejected;
    return;
  }
  if (packet->head.kind == Kind::kUnknownJob || packet->head.kind == Kind::kOperationsDiffer)
    return take_notice(*packet);
  take_result(*packet, now, out);
}

void Worker::take_notice(const Packet& packet) {
  if (packet.head.kind == Kind::kOperationsDiffer) {
    // The slot's sum cannot complete, so no worker is past its turn: an older notice is a replay. A turn that this
    // worker has not started belongs to its next operation: the senders had this worker's packets of the current one.
    const std::uint64_t next = packet.head.slot < slots_.size() ? identity_.first_turn + slots_[packet.head.slot].turns
                                                                : packet.head.sequence + 1;
    if (packet.head.sequence >= next) next_operation_differs_ = true;
    if (packet.head.sequence + 1 == next) operations_differ_ = true;
  } else if (packet.head.job == admission_.job) {
    job_in_doubt_ = true;
  }
}

void Worker::take_result(const Packet& packet, Time now, Outbox& out) {
  const Head& head = packet.head;
  if (head.slot >= slots_.size() || slots_[head.slot].turns == 0) {
    ++counts_.rejected;
    return;
  }
  WorkerSlot& slot = slots_[head.slot];
  const WorkerSlot::SentPacket& expected = slot.last();
  const std::uint64_t sequence_bits = head.mode == Mode::kSwitchMl ? 0xffffffffU : ~std::uint64_t{0};
  const bool same_turn = head.sequence == (expected.head.sequence & sequence_bits) &&
                         head.operation == expected.head.operation && head.set == expected.head.set;
  if (!same_turn || !slot.active() || expected.shape != Shape{packet.exponents.size(), packet.element_count()}) {
    ++counts_.rejected;  // usually a second copy of a result
    return;
  }
  if (silent_) end_silence(now);
  last_progress_ = now;
  loss_detector_.answered(head.slot);
  round_trip_.answered(now - slot.first_sent_at, now - slot.sent_at, slot.tries);
  slot.replaying = false;
  if (!slot.waiting) return;  // the result had arrived before the switch restarted
  slot.waiting = false;
  if (operation_->accept(static_cast<int>(head.slot), packet)) {
    send_next(static_cast<int>(head.slot), now, out);
  } else {
    --waiting_;
  }
}

// Results arrive again: lost packets need not wait for the end of their back-off.
void Worker::end_silence(Time now) {
  silent_ = false;
  for (WorkerSlot& slot : slots_) {
    if (slot.active()) slot.due = std::min(slot.due, now + round_trip_.timeout(0));
  }
  next_due_ = std::min(next_due_, now + round_trip_.timeout(0));
}

void Worker::send_lost(Time now, Outbox& out) {
  while (const std::optional<std::size_t> index = loss_detector_.next()) {
    WorkerSlot& slot = slots_[*index];
    ++slot.tries;
    slot.due = now + round_trip_.timeout(slot.tries);
    next_due_ = std::min(next_due_, slot.due);
    send_again(slot, now, out);
  }
}

// While results arrive, a packet may be queued in a link behind earlier packets. It is late if a later packet was
// answered, or if no result arrived for a full timeout.
Time Worker::due(std::size_t index) const {
  const WorkerSlot& slot = slots_[index];
  const bool may_be_queued = slot.tries == 0 && !loss_detector_.is_behind(index);
  return may_be_queued ? std::max(slot.due, last_progress_ + round_trip_.timeout(0)) : slot.due;
}

void Worker::on_time(Time now, Outbox& out) {
  send_lost(now, out);
  if (now < next_due_) return;
  // No results arrive: the switch or a peer is down, and retransmitting the whole window would not help.
  silent_ = silent_ || now - last_progress_ >= round_trip_.timeout(0);
  int probes = options_.probes;
  next_due_ = kNever;
  for (std::size_t i = 0, first = next_probe_; i < slots_.size(); ++i) {
    const std::size_t index = (first + i) % slots_.size();
    WorkerSlot& slot = slots_[index];
    if (!slot.active()) continue;
    if (due(index) <= now) {
      ++slot.tries;
      slot.due = now + round_trip_.timeout(slot.tries);
      // Replays are always sent, because a peer may need this sum to continue. Probes rotate over the slots.
      if (!silent_ || slot.replaying) {
        send_again(slot, now, out);
      } else if (probes-- > 0) {
        send_again(slot, now, out);
        next_probe_ = (index + 1) % slots_.size();
      }
    }
    next_due_ = std::min(next_due_, due(index));
  }
}

void Worker::send_again(WorkerSlot& slot, Time now, Outbox& out) {
  slot.sent_at = now;
  const bool needs_both = slot.replaying && slot.waiting && slot.turns > 1;
  if (needs_both) transmit(slot.before_last(), out);
  transmit(slot.last(), out);
  counts_.retransmissions += needs_both ? 2 : 1;
}

bool Worker::replaying() const {
  return std::ranges::any_of(slots_, [](const WorkerSlot& slot) { return slot.replaying; });
}

void Worker::use_admission(const Admission& admission) {
  admission_ = admission;
  const auto rank = static_cast<std::uint16_t>(identity_.rank);
  own_mac_ = {identity_.key, {Sender::Role::kWorker, admission.epoch, admission.job, rank, identity_.salt}};
  switch_mac_ = {identity_.key, {Sender::Role::kSwitch, admission.epoch, admission.job, 0, {}}};
}

std::span<std::byte> Worker::shared_elements(const WorkerSlot::SentPacket& packet) const {
  if (!packet.head.shared) return {};
  return identity_.memory.elements_of(packet.head, packet.shape.elements);
}

void Worker::seal(const WorkerSlot::SentPacket& packet) {
  if (packet.head.mode == Mode::kExtended) own_mac_.seal(packet.bytes(), shared_elements(packet));
}

// Copies the elements into the packet, for a switch that does not share this worker's memory.
void Worker::unshare(WorkerSlot::SentPacket& packet) {
  const std::span<const std::byte> elements = shared_elements(packet);
  packet.head.shared = false;
  packet.size = packet_size(packet.head, packet.shape);
  std::ranges::copy(elements, write_head(packet.bytes(), packet.head, packet.shape).elements.begin());
}

void Worker::reseal(WorkerSlot::SentPacket& packet) {
  packet.head.job = admission_.job;
  packet.head.epoch = admission_.epoch;
  if (packet.head.shared && !admission_.shared) unshare(packet);
  (void)write_head(packet.bytes(), packet.head, packet.shape);
  seal(packet);
}

void Worker::rejoin(const Admission& admission, Time now, Outbox& out) {
  use_admission(admission);
  shares_ = shares_ && admission.shared;
  if (admission.port != 0) identity_.switch_address.port = admission.port;
  job_in_doubt_ = false;
  silent_ = false;
  last_progress_ = now;
  next_due_ = kNever;
  loss_detector_.forget();
  for (WorkerSlot& slot : slots_) {
    if (slot.turns == 0) continue;
    reseal(slot.last());
    if (slot.turns > 1) reseal(slot.before_last());
    slot.replaying = true;
    slot.tries = 1;  // counts as a retransmission, so that a slow answer is not a round-trip sample
    slot.first_sent_at = now;
    slot.due = now + round_trip_.timeout(1);
    next_due_ = std::min(next_due_, slot.due);
    send_again(slot, now, out);
  }
}

void Worker::abandon() {
  for (WorkerSlot& slot : slots_) slot.waiting = slot.replaying = false;
  loss_detector_.forget();
  // Peers may still need the abandoned packets, so later ones must not overwrite their elements.
  shares_ = false;
  operation_ = nullptr;
  waiting_ = 0;
  next_due_ = kNever;
}

}  // namespace weft::aggregation
