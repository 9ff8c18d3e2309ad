// Network in memory and virtual time with seeded loss, duplication, delay and reordering.
#pragma once

#include <array>
#include <map>
#include <queue>
#include <random>
#include <vector>

#include "tests/aggregation/packet/bytes.h"
#include "weft/aggregation/packet/time.h"
#include "weft/aggregation/transport/outbox.h"

namespace weft::aggregation {

struct Faults {
  double loss = 0;
  double duplication = 0;
  double late = 0;  // share of duplicates that arrive very late
  Duration delay = std::chrono::microseconds(50);
  Duration jitter{0};  // maximum random extra delay, which reorders packets
  Duration lateness = std::chrono::milliseconds(30);
  double bytes_per_second = 0;  // per link and direction, with an unlimited queue; 0: no limit
};

struct Delivery {
  Time at{};
  std::uint64_t number = 0;  // orders deliveries at the same time
  Address from;
  Address to;
  Bytes bytes;

  friend bool operator>(const Delivery& a, const Delivery& b) {
    return std::pair(a.at, a.number) > std::pair(b.at, b.number);
  }
};

class SimulatedNetwork {
 public:
  SimulatedNetwork(const Faults& faults, std::uint64_t seed) : faults_(faults), random_(seed) {}

  // Sends and removes all packets.
  void send(Outbox& out, const Address& from, Time now) {
    out.for_each_run(1, 1 << 20, [&](std::span<const Route> to, std::span<const Outbox::Packet> run) {
      for (const Route& receiver : to) send_one({run[0].begin(), run[0].end()}, from, receiver.peer, now);
    });
    out.clear();
  }
  [[nodiscard]] bool empty() const { return under_way_.empty(); }
  [[nodiscard]] Time next() const { return under_way_.top().at; }
  [[nodiscard]] Delivery take() {
    Delivery delivery = under_way_.top();
    under_way_.pop();
    return delivery;
  }

 private:
  bool happens(double probability) { return std::bernoulli_distribution(probability)(random_); }

  void send_one(const Bytes& bytes, const Address& from, const Address& to, Time now) {
    if (!happens(faults_.loss)) deliver(bytes, from, to, now);
    while (happens(faults_.duplication)) {
      deliver(bytes, from, to, happens(faults_.late) ? now + faults_.lateness : now);
    }
  }
  void deliver(const Bytes& bytes, const Address& from, const Address& to, Time now) {
    const auto jitter = faults_.jitter.count() > 0 ? random_() % static_cast<std::uint64_t>(faults_.jitter.count()) : 0;
    under_way_.push(
        {passed(bytes.size(), from, to, now) + faults_.delay + Duration(jitter), ++number_, from, to, bytes});
  }
  // Time at which the packet leaves the queue of its link.
  Time passed(std::size_t bytes, const Address& from, const Address& to, Time now) {
    if (faults_.bytes_per_second == 0) return now;
    Time& free = links_free_[{from.ipv4, from.port, to.ipv4, to.port}];
    free = std::max(free, now) +
           Duration(static_cast<std::int64_t>(1e9 * static_cast<double>(bytes) / faults_.bytes_per_second));
    return free;
  }

  Faults faults_;
  std::mt19937_64 random_;
  std::uint64_t number_ = 0;
  std::map<std::array<std::uint32_t, 4>, Time> links_free_;
  std::priority_queue<Delivery, std::vector<Delivery>, std::greater<>> under_way_;
};

}  // namespace weft::aggregation
