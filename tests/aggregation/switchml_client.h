// Model of one thread of SwitchML's own client: its packet numbers, slots and retransmissions.
//
// Packet ids restart with every job and are little-endian; slots continue where the last job ended; a thread's slots
// start at 2 * outstanding * thread, and its port is the worker's first port plus the thread number.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "weft/aggregation/packet/byte_order.h"
#include "weft/aggregation/packet/packet.h"
#include "weft/aggregation/packet/time.h"
#include "weft/aggregation/transport/outbox.h"

namespace weft::aggregation {

class SwitchMlClient {
 public:
  static constexpr std::uint32_t kElements = 64;
  static constexpr Duration kTimeout = std::chrono::milliseconds(1);

  SwitchMlClient(std::uint32_t thread, std::uint32_t outstanding, const Address& target)
      : first_slot_(2 * outstanding * thread), outstanding_(outstanding), target_(target) {}

  // The length is a multiple of kElements.
  void begin(std::uint8_t job, std::vector<std::int32_t> data, Time now, Outbox& out) {
    shift_ += total_;
    job_ = job;
    data_ = std::move(data);
    total_ = static_cast<std::uint32_t>(data_.size()) / kElements;
    received_.assign(total_, false);
    missing_ = total_;
    for (std::uint32_t id = 0; id < std::min(outstanding_, total_); ++id) send(id, now, out);
  }
  void handle(std::span<const std::byte> bytes, Time now, Outbox& out) {
    const Packet packet = *decode(bytes);
    const std::uint32_t id = swap_bytes(static_cast<std::uint32_t>(packet.head.sequence));
    if (packet.head.operation != job_ || id >= total_ || received_[id]) return;
    received_[id] = true;
    --missing_;
    due_.erase(id);
    for (std::size_t i = 0; i < kElements; ++i) {
      data_[id * kElements + i] =
          static_cast<std::int32_t>(load_big_endian<std::uint32_t>(packet.elements.data() + 4 * i));
    }
    if (id + outstanding_ < total_) send(id + outstanding_, now, out);
  }
  void on_time(Time now, Outbox& out) {
    if (next_due() > now) return;
    const std::map<std::uint32_t, Time> due = due_;
    for (const auto& [id, at] : due) {
      if (at <= now) send(id, now, out);
    }
  }
  [[nodiscard]] Time next_due() const {
    Time next = Time::max();
    for (const auto& [id, at] : due_) next = std::min(next, at);
    return next;
  }
  [[nodiscard]] bool done() const { return missing_ == 0; }
  [[nodiscard]] const std::vector<std::int32_t>& data() const { return data_; }

 private:
  void send(std::uint32_t id, Time now, Outbox& out) {
    const std::uint32_t place = (id + shift_) % (2 * outstanding_);
    const Head head{.mode = Mode::kSwitchMl,
                    .slot = first_slot_ + place % outstanding_,
                    .set = static_cast<std::uint8_t>(place / outstanding_),
                    .operation = job_,
                    .sequence = swap_bytes(id)};
    const Shape shape = full_shape(Mode::kSwitchMl, kElements);
    const std::span<std::byte> bytes = out.add(target_, packet_size(Mode::kSwitchMl, shape));
    const Body body = write_head(bytes, head, shape);
    std::ranges::fill(body.exponents, std::byte{0});
    for (std::size_t i = 0; i < kElements; ++i) {
      store_big_endian(body.elements.data() + 4 * i, static_cast<std::uint32_t>(data_[id * kElements + i]));
    }
    due_[id] = now + kTimeout;
  }

  std::uint32_t first_slot_;
  std::uint32_t outstanding_;
  Address target_;
  std::uint8_t job_ = 0;
  std::uint32_t shift_ = 0;
  std::uint32_t total_ = 0;
  std::uint32_t missing_ = 0;
  std::vector<bool> received_;
  std::vector<std::int32_t> data_;
  std::map<std::uint32_t, Time> due_;  // unanswered packets
};

}  // namespace weft::aggregation
