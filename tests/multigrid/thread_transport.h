// ThreadTransport: a Transport between threads of one process, and run_on_threads() to run a function on all of them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "weft/mpi/error.h"
#include "weft/multigrid/transport.h"

namespace weft::multigrid {

// The state that the ranks share.
class ThreadHub {
 public:
  explicit ThreadHub(int ranks) : ranks_(ranks) {}

  struct Message {
    std::optional<Packed> content;  // empty for a failure notice
    std::optional<std::int64_t> announced;
  };
  using Route = std::tuple<int, int, int>;  // source, destination, level

  void put(const Route& route, Message message) {
    const std::lock_guard lock(mutex_);
    messages_[route].push_back(std::move(message));
    changed_.notify_all();
  }
  Message take(const Route& route) {
    std::unique_lock lock(mutex_);
    await(lock, [&] { return !messages_[route].empty(); });
    Message message = std::move(messages_[route].front());
    messages_[route].pop_front();
    return message;
  }
  // The number of unreceived messages, which must be 0 after a solve.
  [[nodiscard]] std::size_t left_over() {
    const std::lock_guard lock(mutex_);
    std::size_t count = 0;
    for (const auto& [route, messages] : messages_) count += messages.size();
    return count;
  }

  // The contributions of the ranks to the n-th collective.
  struct Collective {
    std::vector<std::string> texts;
    std::vector<double> values;
    bool failed = false;
    int arrived = 0;
  };
  void join(std::size_t number, int rank, double value, bool failed, const std::string& text) {
    const std::lock_guard lock(mutex_);
    Collective& entry = collectives_[number];
    entry.texts.resize(static_cast<std::size_t>(ranks_));
    entry.values.resize(static_cast<std::size_t>(ranks_));
    entry.texts[static_cast<std::size_t>(rank)] = text;
    entry.values[static_cast<std::size_t>(rank)] = value;
    entry.failed = entry.failed || failed;
    ++entry.arrived;
    changed_.notify_all();
  }
  Collective result(std::size_t number) {
    std::unique_lock lock(mutex_);
    await(lock, [&] { return collectives_[number].arrived == ranks_; });
    return collectives_[number];
  }

  void interrupt(const std::string& cause) {
    const std::lock_guard lock(mutex_);
    cause_ = cause;
    changed_.notify_all();
  }
  [[nodiscard]] int ranks() const { return ranks_; }

 private:
  template <class Ready>
  void await(std::unique_lock<std::mutex>& lock, Ready&& ready) {
    const bool in_time = changed_.wait_for(lock, std::chrono::seconds(30), [&] { return ready() || !cause_.empty(); });
    if (!in_time) throw std::runtime_error("the ranks wait for each other (deadlock)");
    if (!ready()) throw mpi::PeerLost(0, cause_, false);
  }

  int ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Route, std::deque<Message>> messages_;
  std::map<std::size_t, Collective> collectives_;
  std::string cause_;
};

class ThreadTransport final : public Transport {
 public:
  ThreadTransport(std::shared_ptr<ThreadHub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return hub_->ranks(); }

  void begin(std::uint64_t signature, bool failed, const std::string& description) override {
    const auto collective = combine(0, failed, std::to_string(signature));
    for (const std::string& other : collective.texts) {
      if (failed || collective.failed || other != std::to_string(signature)) throw mpi::Disagreement(description);
    }
  }

  std::unique_ptr<IncomingState> receive(int source, int level, std::optional<std::int64_t> bytes) override {
    return std::make_unique<Receive>(*hub_, ThreadHub::Route{source, rank_, level}, bytes);
  }
  void send(int dest, int level, std::optional<Packed> message, std::optional<std::int64_t> bytes) override {
    hub_->put({rank_, dest, level}, {std::move(message), bytes});
  }
  void progress() override {}
  void finish() override {}

  std::unique_ptr<PendingReduction> reduce(double value, bool maximum, bool failed) override {
    hub_->join(collectives_, rank_, value, failed, "");
    return std::make_unique<Pending>(*hub_, collectives_++, maximum);
  }
  bool end(bool failed) override { return combine(0, failed, "").failed; }
  std::vector<std::string> gather(const std::string& text) override { return combine(0, false, text).texts; }
  void abandon(const std::string& cause) noexcept override { hub_->interrupt(cause); }

 private:
  class Receive final : public IncomingState {
   public:
    Receive(ThreadHub& hub, ThreadHub::Route route, std::optional<std::int64_t> bytes)
        : hub_(hub), route_(route), bytes_(bytes) {}
    std::optional<Packed> wait() override {
      const ThreadHub::Message received = hub_.take(route_);
      if (received.announced != bytes_) throw std::logic_error("sender and receiver announce different sizes");
      if (!received.content) return std::nullopt;
      const auto bytes = received.content->bytes;
      if (bytes_ && *bytes_ != static_cast<std::int64_t>(bytes.size())) {
        throw std::logic_error("a message does not have the announced size");
      }
      // Copied as late as possible, to detect a sender that overwrites its message.
      auto copy = std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end());
      return Packed{{copy->data(), copy->size()}, copy};
    }

   private:
    ThreadHub& hub_;
    ThreadHub::Route route_;
    std::optional<std::int64_t> bytes_;
  };

  class Pending final : public PendingReduction {
   public:
    Pending(ThreadHub& hub, std::size_t number, bool maximum) : hub_(hub), number_(number), maximum_(maximum) {}
    ReductionResult wait() override {
      const ThreadHub::Collective collective = hub_.result(number_);
      double result = 0;
      for (const double value : collective.values) {
        if (maximum_) {
          result = value != value || value > result ? value : result;
        } else {
          result += value;
        }
      }
      return {result, collective.failed};
    }

   private:
    ThreadHub& hub_;
    std::size_t number_;
    bool maximum_;
  };

  ThreadHub::Collective combine(double value, bool failed, const std::string& text) {
    hub_->join(collectives_, rank_, value, failed, text);
    return hub_->result(collectives_++);
  }

  std::shared_ptr<ThreadHub> hub_;
  int rank_;
  std::size_t collectives_ = 0;  // number of collectives that this rank has called
};

// Runs body(transport) on each of `ranks` threads. Rethrows the exception of the lowest rank. Throws if a message is
// left over.
template <class Body>
void run_on_threads(int ranks, Body&& body) {
  const auto hub = std::make_shared<ThreadHub>(ranks);
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(std::make_shared<ThreadTransport>(hub, rank));
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
        hub->interrupt(error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error != nullptr) std::rethrow_exception(error);
  }
  if (hub->left_over() > 0) throw std::logic_error(std::to_string(hub->left_over()) + " messages left over");
}

}  // namespace weft::multigrid
