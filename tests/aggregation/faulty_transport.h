// Wrapper of a transport that loses, duplicates and reorders sent packets, by a seed.
#pragma once

#include <memory>
#include <random>

#include "weft/aggregation/transport/outbox.h"
#include "weft/aggregation/transport/transport.h"

namespace weft::aggregation {

class FaultyTransport final : public Transport {
 public:
  FaultyTransport(std::unique_ptr<Transport> inner, double share, unsigned seed)
      : inner_(std::move(inner)), fault_(share), random_(seed) {}

  [[nodiscard]] Address local() const override { return inner_->local(); }
  void send(Outbox& out) override {
    Outbox changed;
    out.for_each_run(1, 1 << 20, [&](std::span<const Route> to, std::span<const Outbox::Packet> run) {
      if (fault_(random_)) return;  // lost
      put(changed, to, run[0]);
      if (fault_(random_)) put(changed, to, run[0]);
      if (fault_(random_)) held_back_.push_back({{to.begin(), to.end()}, {run[0].begin(), run[0].end()}});
    });
    inner_->send(changed);
    out.clear();
    release();
  }
  bool receive(Duration longest, const Receiver& receiver) override { return inner_->receive(longest, receiver); }
  void wake() override { inner_->wake(); }
  [[nodiscard]] int descriptor() const override { return inner_->descriptor(); }
  bool accept_only(std::span<const Address> sources) override { return inner_->accept_only(sources); }

 private:
  struct Held {
    std::vector<Route> to;
    std::vector<std::byte> bytes;
  };

  static void put(Outbox& out, std::span<const Route> to, std::span<const std::byte> bytes) {
    std::ranges::copy(bytes, out.add(to, bytes.size()).begin());
  }
  // A late duplicate, after many other packets.
  void release() {
    if (held_back_.size() < 30) return;
    Outbox late;
    for (const Held& held : held_back_) put(late, held.to, held.bytes);
    held_back_.clear();
    inner_->send(late);
  }

  std::unique_ptr<Transport> inner_;
  std::bernoulli_distribution fault_;
  std::mt19937 random_;
  std::vector<Held> held_back_;
};

}  // namespace weft::aggregation
