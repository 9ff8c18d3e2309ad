// Simulator in virtual time: workers and a switch on a simulated network, with operations and faults.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <vector>

#include "tests/aggregation/simulated_network.h"
#include "tests/aggregation/switch/switch_driver.h"
#include "weft/aggregation/switch/jobs.h"
#include "weft/aggregation/worker/worker.h"

namespace weft::aggregation {

inline constexpr Address kSwitchAddress{0x0a0a0a0a, 48864};

struct SimulationOptions {
  Mode mode = Mode::kExtended;
  int workers = 2;
  int packet_elements = 64;
  int window = 8;
  Faults faults{};
  std::uint64_t seed = 1;
  std::uint8_t first_operation = 0;
  std::uint64_t first_turn = 0;
  bool shared = false;  // two of three workers share memory with the switch; every second switch does not support it
  Duration suspect_after = std::chrono::milliseconds(500);
  Duration longest = std::chrono::seconds(600);  // virtual time; a longer run is a livelock
};

class SimulatedJob {
 public:
  using MakeOperation =
      std::function<std::unique_ptr<SumStream>(int rank, std::size_t number, const SumLayout& layout)>;

  explicit SimulatedJob(const SimulationOptions& options)
      : options_(options), network_(options.faults, options.seed), random_(options.seed + 1) {
    memory_.resize(static_cast<std::size_t>(options.workers));
    start_switch();
    for (int rank = 0; rank < options.workers; ++rank) seats_.push_back({make_worker(rank), nullptr, 0, {}, {}, {}});
  }

  // Restarts the switch at virtual time `at`; it loses all state.
  void restart_switch_at(Time at) { switch_restarts_.push_back(at); }
  // Restarts a worker process at virtual time `at`. This ends the job: all workers join a new one and repeat the first
  // operation that not all have finished.
  void restart_worker_at(Time at, int rank) { worker_restarts_.emplace_back(at, rank); }
  // Workers wait for a random time before each operation.
  void think_up_to(Duration longest) { thinking_ = longest; }

  // Every worker runs `operations` operations in order; throws std::runtime_error for a livelock.
  void run(std::size_t operations, const MakeOperation& make) {
    operations_ = operations;
    make_ = make;
    while (!finished()) {
      if (now_ > options_.longest)
        throw std::runtime_error("the run did not end after " + std::to_string(now_.count()) + " ns");
      step();
    }
  }

  [[nodiscard]] Time now() const { return now_; }
  [[nodiscard]] Snapshot snapshot() const { return jobs_->snapshot(now_); }
  [[nodiscard]] const Worker& worker(int rank) const { return *seats_[static_cast<std::size_t>(rank)].worker; }
  [[nodiscard]] std::uint64_t retransmissions() const {
    std::uint64_t sum = 0;
    for (const Seat& seat : seats_) sum += seat.worker->counts().retransmissions;
    return sum;
  }
  Bytes last_contribution;  // for tests that inject

 private:
  struct Seat {
    std::unique_ptr<Worker> worker;
    std::unique_ptr<SumStream> operation;
    std::size_t completed = 0;
    Time begins{};          // earliest start
    Time asked{};           // last check whether the job exists
    Admission admission{};  // current admission of the worker
  };

  void start_switch() {
    SwitchLimits limits;
    jobs_ = std::make_unique<Jobs>(limits, ++epoch_);
    admit();
  }
  void admit() {
    JobSpec spec{.name = "simulated",
                 .session = ++session_,
                 .mode = options_.mode,
                 .workers = options_.workers,
                 .packet_elements = options_.packet_elements,
                 .slots = options_.window,
                 .key = kTestKey};
    for (int rank = 0; rank < options_.workers; ++rank) spec.addresses.push_back(worker_address(rank));
    // After a restart, operation numbers continue: workers pass theirs to the control plane.
    spec.first_operation = options_.first_operation;
    if (!seats_.empty() && !anew_) {
      spec.first_operation = static_cast<std::uint8_t>(seats_[0].worker->operation_number() - 1);
    }
    admission_ = std::get<Admission>(jobs_->admit(spec, now_));
    if (options_.shared && epoch_ % 2 == 1) share_memory();
    if (epoch_ == 1) first_admission_ = admission_;
  }
  void share_memory() {
    for (int rank = 0; rank < options_.workers; ++rank) {
      if (!offers_memory(rank)) continue;
      const auto slots = std::make_shared<const SharedSlots>(memory_of(rank));
      EXPECT_EQ(jobs_->place_worker(session_, rank, worker_address(rank), {}, slots), "");
    }
    admission_.shared = true;
  }
  [[nodiscard]] static bool offers_memory(int rank) { return rank % 3 != 2; }
  [[nodiscard]] SharedSlots memory_of(int rank) {
    Bytes& bytes = memory_[static_cast<std::size_t>(rank)];
    bytes.resize(SharedSlots::bytes(options_.window, options_.packet_elements));
    return {bytes, options_.packet_elements};
  }
  std::unique_ptr<Worker> make_worker(int rank) {
    WorkerIdentity identity;
    identity.layout = {options_.mode, options_.packet_elements, options_.workers, options_.window};
    identity.rank = rank;
    identity.key = kTestKey;
    identity.switch_address = kSwitchAddress;
    identity.first_turn = options_.first_turn;
    if (options_.shared && offers_memory(rank)) identity.memory = memory_of(rank);
    Admission admission = admission_;
    admission.first_operation = options_.first_operation;
    return std::make_unique<Worker>(identity, admission);
  }

  [[nodiscard]] bool finished() const {
    for (const Seat& seat : seats_) {
      if (seat.completed < operations_) return false;
    }
    return true;
  }

  // Advances to the next event.
  void step() {
    Time next = Time::max();
    if (!network_.empty()) next = network_.next();
    for (const Seat& seat : seats_) next = std::min(next, next_moment(seat));
    for (const Time at : switch_restarts_) next = std::min(next, at);
    for (const auto& [at, rank] : worker_restarts_) next = std::min(next, at);
    if (next == Time::max()) throw std::runtime_error("all workers wait and no packet is in flight");
    now_ = std::max(now_, next);
    mishaps();
    while (!network_.empty() && network_.next() <= now_) deliver(network_.take());
    for (std::size_t rank = 0; rank < seats_.size(); ++rank) attend(static_cast<int>(rank));
  }
  [[nodiscard]] Time next_moment(const Seat& seat) const {
    if (seat.operation == nullptr && seat.completed < operations_) return std::max(seat.begins, now_);
    if (seat.operation != nullptr && seat.worker->done()) return now_;
    return seat.operation != nullptr || seat.worker->replaying() ? seat.worker->next_due() : Time::max();
  }

  void mishaps() {
    if (std::erase_if(switch_restarts_, [&](Time at) { return at <= now_; }) > 0) start_switch();
    if (std::erase_if(worker_restarts_, [&](const auto& entry) { return entry.first <= now_; }) > 0) start_job_anew();
  }

  // Like an elastic launcher: all workers restart with the first operation that not all have finished.
  void start_job_anew() {
    std::size_t completed = operations_;
    for (const Seat& seat : seats_) completed = std::min(completed, seat.completed);
    jobs_->end(session_);
    // Packets of the old job may still be in flight, and SwitchML's packets do not name their job.
    options_.first_operation = static_cast<std::uint8_t>(options_.first_operation + 100);
    anew_ = true;
    admit();
    anew_ = false;
    for (std::size_t rank = 0; rank < seats_.size(); ++rank) {
      seats_[rank] = {make_worker(static_cast<int>(rank)), nullptr, completed, now_, {}, admission_};
    }
  }

  void deliver(const Delivery& delivery) {
    Outbox out;
    if (delivery.to == kSwitchAddress) {
      last_contribution = delivery.bytes;
      jobs_->handle(delivery.bytes, delivery.from, now_, out);
      network_.send(out, kSwitchAddress, now_);
      return;
    }
    const auto rank = static_cast<int>(delivery.to.ipv4 - worker_address(0).ipv4);
    seats_[static_cast<std::size_t>(rank)].worker->handle(delivery.bytes, now_, out);
    network_.send(out, worker_address(rank), now_);
  }

  void attend(int rank) {
    Seat& seat = seats_[static_cast<std::size_t>(rank)];
    Outbox out;
    if (seat.operation != nullptr && seat.worker->done()) {
      seat.operation.reset();
      ++seat.completed;
      seat.begins =
          thinking_.count() > 0 ? now_ + Duration(random_() % static_cast<std::uint64_t>(thinking_.count())) : now_;
    }
    if (seat.operation == nullptr && seat.completed < operations_ && seat.begins <= now_) {
      seat.operation =
          make_(rank, seat.completed, {options_.mode, options_.packet_elements, options_.workers, options_.window});
      seat.worker->begin(*seat.operation, now_, out);
    }
    look_after_job(seat, out);
    seat.worker->on_time(now_, out);
    network_.send(out, worker_address(rank), now_);
  }

  // Like WorkerSession with a control plane; idle workers check, too.
  void look_after_job(Seat& seat, Outbox& out) {
    const bool stuck = now_ - std::max(seat.worker->last_progress(), seat.asked) > options_.suspect_after;
    if (!seat.worker->job_in_doubt() && !stuck && seat.operation != nullptr) return;
    seat.asked = now_;
    seat.worker->trust_job();
    if (seat.admission.epoch == 0) seat.admission = first_admission_;
    if (seat.admission == admission_) return;
    seat.admission = admission_;
    seat.worker->rejoin(admission_, now_, out);
  }

  SimulationOptions options_;
  SimulatedNetwork network_;
  std::mt19937_64 random_;
  std::unique_ptr<Jobs> jobs_;
  std::uint64_t epoch_ = 0;
  bool anew_ = false;  // a new job, not a continued one
  std::uint64_t session_ = 0;
  Admission admission_;
  Admission first_admission_;
  std::vector<Seat> seats_;
  std::vector<Bytes> memory_;  // by rank; a restarted worker overwrites that of its predecessor
  std::size_t operations_ = 0;
  MakeOperation make_;
  Time now_{0};
  Duration thinking_{0};
  std::vector<Time> switch_restarts_;
  std::vector<std::pair<Time, int>> worker_restarts_;
};

}  // namespace weft::aggregation
