// Transports within a process, over a network in memory that loses, duplicates, delays and reorders packets by a seed.
#pragma once

#include <sys/eventfd.h>

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "tests/aggregation/simulated_network.h"
#include "weft/aggregation/transport/transport.h"
#include "weft/files/file_descriptor.h"

namespace weft::aggregation {

// The fate of the n-th packet depends only on the seed; which packet is the n-th depends on the threads.
class MemoryNetwork {
 public:
  MemoryNetwork(const Faults& faults, std::uint64_t seed) : network_(faults, seed) {}

  // The network must outlive the transport.
  [[nodiscard]] std::unique_ptr<Transport> open(const Address& address) {
    return std::make_unique<Endpoint>(*this, address);
  }

 private:
  class Endpoint final : public Transport {
   public:
    Endpoint(MemoryNetwork& network, const Address& address)
        : network_(network), address_(address), ready_(::eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC)) {}

    [[nodiscard]] Address local() const override { return address_; }
    void send(Outbox& out) override { network_.send(out, address_); }
    bool receive(Duration longest, const Receiver& receiver) override {
      const std::vector<Delivery> batch = network_.take(address_, steady_now() + longest, woken_);
      for (const Delivery& delivery : batch) {
        if (is_welcome(delivery.from)) receiver({delivery.bytes, delivery.bytes.size(), delivery.from});
      }
      return !batch.empty();
    }
    void wake() override { network_.wake(woken_); }
    // Always readable, so that a poll() loop never sleeps.
    [[nodiscard]] int descriptor() const override { return ready_.get(); }
    bool accept_only(std::span<const Address> sources) override {
      sources_.emplace(sources.begin(), sources.end());
      return true;
    }

   private:
    [[nodiscard]] bool is_welcome(const Address& from) const {
      return !sources_ || std::ranges::find(*sources_, from) != sources_->end();
    }

    MemoryNetwork& network_;
    Address address_;
    files::FileDescriptor ready_;
    bool woken_ = false;  // guarded by the network's lock
    std::optional<std::vector<Address>> sources_;
  };

  void send(Outbox& out, const Address& from) {
    const std::lock_guard lock(mutex_);
    network_.send(out, from, steady_now());
    changed_.notify_all();
  }
  void wake(bool& woken) {
    const std::lock_guard lock(mutex_);
    woken = true;
    changed_.notify_all();
  }
  // Returns the packets that have arrived; waits until the deadline or a wakeup.
  std::vector<Delivery> take(const Address& address, Time until, bool& woken) {
    std::unique_lock lock(mutex_);
    while (true) {
      const Time now = steady_now();
      while (!network_.empty() && network_.next() <= now) {
        Delivery delivery = network_.take();
        arrived_[delivery.to].push_back(std::move(delivery));
      }
      std::vector<Delivery> batch = std::exchange(arrived_[address], {});
      if (!batch.empty()) changed_.notify_all();
      if (!batch.empty() || now >= until || std::exchange(woken, false)) return batch;
      const Time next = network_.empty() ? until : std::min(until, network_.next());
      changed_.wait_for(lock, next - now);
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  SimulatedNetwork network_;
  std::map<Address, std::vector<Delivery>> arrived_;
};

}  // namespace weft::aggregation
