// A Transport between threads of one process, and a way to run a function on several such ranks.
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

// What the ranks share.
class ThreadHub {
 public:
  explicit ThreadHub(int ranks) : ranks_(ranks) {}

  struct Letter {
    std::optional<Packed> message;
    std::optional<std::int64_t> announced;
  };
  using Route = std::tuple<int, int, int>;  // source, destination, level

  void put(const Route& route, Letter letter) {
    const std::lock_guard lock(mutex_);
    letters_[route].push_back(std::move(letter));
    changed_.notify_all();
  }
  Letter take(const Route& route) {
    std::unique_lock lock(mutex_);
    await(lock, [&] { return !letters_[route].empty(); });
    Letter letter = std::move(letters_[route].front());
    letters_[route].pop_front();
    return letter;
  }
  // Letters that nobody took: a solve must leave none.
  [[nodiscard]] std::size_t left_over() {
    const std::lock_guard lock(mutex_);
    std::size_t count = 0;
    for (const auto& [route, letters] : letters_) count += letters.size();
    return count;
  }

  // The ranks' contributions to the n-th collective.
  struct Meeting {
    std::vector<std::string> texts;
    std::vector<double> values;
    bool failed = false;
    int arrived = 0;
  };
  void join(std::size_t number, int rank, double value, bool failed, const std::string& text) {
    const std::lock_guard lock(mutex_);
    Meeting& meeting = meetings_[number];
    meeting.texts.resize(static_cast<std::size_t>(ranks_));
    meeting.values.resize(static_cast<std::size_t>(ranks_));
    meeting.texts[static_cast<std::size_t>(rank)] = text;
    meeting.values[static_cast<std::size_t>(rank)] = value;
    meeting.failed = meeting.failed || failed;
    ++meeting.arrived;
    changed_.notify_all();
  }
  Meeting outcome(std::size_t number) {
    std::unique_lock lock(mutex_);
    await(lock, [&] { return meetings_[number].arrived == ranks_; });
    return meetings_[number];
  }

  void break_down(const std::string& cause) {
    const std::lock_guard lock(mutex_);
    cause_ = cause;
    changed_.notify_all();
  }
  [[nodiscard]] int ranks() const { return ranks_; }

 private:
  template <class Ready>
  void await(std::unique_lock<std::mutex>& lock, Ready&& ready) {
    const bool in_time = changed_.wait_for(lock, std::chrono::seconds(30), [&] { return ready() || !cause_.empty(); });
    if (!in_time) throw std::runtime_error("the ranks wait for each other");
    if (!ready()) throw mpi::PeerLost(0, cause_);
  }

  int ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Route, std::deque<Letter>> letters_;
  std::map<std::size_t, Meeting> meetings_;
  std::string cause_;
};

class ThreadTransport final : public Transport {
 public:
  ThreadTransport(std::shared_ptr<ThreadHub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return hub_->ranks(); }

  void begin(std::uint64_t signature, bool failed, const std::string& description) override {
    const auto meeting = meet(0, failed, std::to_string(signature));
    for (const std::string& other : meeting.texts) {
      if (failed || meeting.failed || other != std::to_string(signature)) throw mpi::Disagreement(description);
    }
  }

  std::unique_ptr<Incoming> receive(int source, int level, std::optional<std::int64_t> bytes) override {
    return std::make_unique<Receive>(*hub_, ThreadHub::Route{source, rank_, level}, bytes);
  }
  void send(int dest, int level, std::optional<Packed> message, std::optional<std::int64_t> bytes) override {
    hub_->put({rank_, dest, level}, {std::move(message), bytes});
  }
  void progress() override {}
  void finish() override {}

  std::unique_ptr<PendingAgreement> agree(double value, bool maximum, bool failed) override {
    hub_->join(meetings_, rank_, value, failed, "");
    return std::make_unique<Pending>(*hub_, meetings_++, maximum);
  }
  bool end(bool failed) override { return meet(0, failed, "").failed; }
  std::vector<std::string> gather(const std::string& text) override { return meet(0, false, text).texts; }
  void abandon(const std::string& cause) noexcept override { hub_->break_down(cause); }

 private:
  class Receive final : public Incoming {
   public:
    Receive(ThreadHub& hub, ThreadHub::Route route, std::optional<std::int64_t> bytes)
        : hub_(hub), route_(route), bytes_(bytes) {}
    std::optional<Packed> wait() override {
      const ThreadHub::Letter letter = hub_.take(route_);
      if (letter.announced != bytes_) throw std::logic_error("the ends of a message announce different sizes");
      if (!letter.message) return std::nullopt;
      const auto bytes = letter.message->bytes;
      if (bytes_ && *bytes_ != static_cast<std::int64_t>(bytes.size())) {
        throw std::logic_error("a message is not as long as announced");
      }
      // Copied only now: a sender that writes into what it sent would be found out.
      auto copy = std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end());
      return Packed{{copy->data(), copy->size()}, copy};
    }

   private:
    ThreadHub& hub_;
    ThreadHub::Route route_;
    std::optional<std::int64_t> bytes_;
  };

  class Pending final : public PendingAgreement {
   public:
    Pending(ThreadHub& hub, std::size_t number, bool maximum) : hub_(hub), number_(number), maximum_(maximum) {}
    Agreement wait() override {
      const ThreadHub::Meeting meeting = hub_.outcome(number_);
      double result = 0;
      for (const double value : meeting.values) {
        if (maximum_) {
          result = value != value || value > result ? value : result;
        } else {
          result += value;
        }
      }
      return {result, meeting.failed};
    }

   private:
    ThreadHub& hub_;
    std::size_t number_;
    bool maximum_;
  };

  ThreadHub::Meeting meet(double value, bool failed, const std::string& text) {
    hub_->join(meetings_, rank_, value, failed, text);
    return hub_->outcome(meetings_++);
  }

  std::shared_ptr<ThreadHub> hub_;
  int rank_;
  std::size_t meetings_ = 0;  // that this rank has joined
};

// Runs body(transport) on each of `ranks` threads; throws what the first of them threw, and if a message is left over.
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
        hub->break_down(error.what());
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
