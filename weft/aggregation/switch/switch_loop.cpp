#include "weft/aggregation/switch/switch_loop.h"

#include <sys/eventfd.h>

#include <cerrno>
#include <exception>
#include <system_error>

#include "weft/aggregation/switch/aggregation_switch.h"

namespace weft::aggregation {
namespace {

std::vector<std::unique_ptr<Transport>> single(std::unique_ptr<Transport> transport) {
  std::vector<std::unique_ptr<Transport>> transports;
  transports.push_back(std::move(transport));
  return transports;
}

}  // namespace

SwitchLoop::SwitchLoop(Jobs& jobs, std::vector<std::unique_ptr<Transport>> transports)
    : jobs_(jobs), transports_(std::move(transports)), wakes_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (wakes_.get() < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  for (const auto& transport : transports_) waiting_.push_back({transport->descriptor(), POLLIN, 0});
  waiting_.push_back({wakes_.get(), POLLIN, 0});
  jobs_.on_change([this] { wake(); });
}

SwitchLoop::~SwitchLoop() { jobs_.on_change({}); }

SwitchLoop::SwitchLoop(Jobs& jobs, std::unique_ptr<Transport> transport)
    : SwitchLoop(jobs, single(std::move(transport))) {}

void SwitchLoop::run() {
  while (!stopping_) {
    if (serve_all()) continue;
    if (!spin_wait_.find(Duration::max(), [&] { return serve_all(); })) sleep();
    spin_wait_.end();
  }
}

bool SwitchLoop::any_ready(int milliseconds) { return ::poll(waiting_.data(), waiting_.size(), milliseconds) > 0; }

void SwitchLoop::sleep() {
  if (!any_ready(-1) || waiting_.back().revents == 0) return;
  std::uint64_t wakes = 0;
  [[maybe_unused]] const ssize_t read = ::read(wakes_.get(), &wakes, sizeof wakes);
}

bool SwitchLoop::serve_all() {
  follow_changes();
  const bool single = transports_.size() == 1;  // no poll needed
  if (!single && !any_ready(0)) return false;
  bool any = false;
  for (std::size_t i = 0; i < transports_.size(); ++i) {
    if (single || waiting_[i].revents != 0) any |= serve(*transports_[i]);
  }
  return any;
}

bool SwitchLoop::serve(Transport& transport) {
  const bool any = transport.receive(Duration{0}, [&](const PacketRun& run) {
    const Time now = steady_now();
    const Route from(run.from, run.to);
    jobs_.with_switch([&](AggregationSwitch& aggregation) {
      run.for_each([&](std::span<const std::byte> packet) { aggregation.handle(packet, from, now, out_); });
    });
    if (out_.is_worth_sending()) send(transport);
  });
  send(transport);
  return any;
}

// An error in one batch must not affect others: the batch counts as lost.
void SwitchLoop::send(Transport& transport) {
  if (out_.empty()) return;
  std::uint64_t lost = out_.size();
  const std::uint64_t before = transport.lost_on_sending();
  try {
    transport.send(out_);
    lost = transport.lost_on_sending() - before;
  } catch (const std::exception&) {
    out_.clear();
  }
  if (lost > 0) jobs_.note_lost(lost);
}

// The first port stays unfiltered: the switch counts strays there and sends notices about unknown jobs.
void SwitchLoop::follow_changes() {
  if (transports_.size() < 2) return;
  const std::uint64_t changes = jobs_.changes();
  if (changes == changes_) return;
  changes_ = changes;
  int unfiltered = 0;
  for (std::size_t i = 1; i < transports_.size(); ++i) {
    unfiltered += transports_[i]->accept_only(jobs_.sources(transports_[i]->local().port)) ? 0 : 1;
  }
  jobs_.note_unfiltered(unfiltered);
}

void SwitchLoop::stop() {
  stopping_ = true;
  wake();
}

void SwitchLoop::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wakes_.get(), &one, sizeof one);
}

}  // namespace weft::aggregation
