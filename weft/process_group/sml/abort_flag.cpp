#include "weft/process_group/sml/abort_flag.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace weft::process_group {
namespace {

constexpr auto kTimeout = std::chrono::seconds(2);

c10::intrusive_ptr<c10d::Store> own_connection(const c10::intrusive_ptr<c10d::Store>& store) {
  try {
    return store->clone();
  } catch (const std::exception&) {  // a custom store without clone()
    return store;
  }
}

}  // namespace

// Shared with the thread of a call that may outlive the flag.
struct AbortFlag::Access {
  c10::intrusive_ptr<c10d::Store> store;
  std::string key;
  std::mutex mutex{};
  std::condition_variable finished{};
  bool busy = false;   // guarded by `mutex`; the members above and below belong to the running call
  std::string text{};  // value of the key
};

AbortFlag::AbortFlag(const c10::intrusive_ptr<c10d::Store>& store, std::string key, int rank)
    : access_(new Access{own_connection(store), std::move(key)}), name_("rank " + std::to_string(rank)) {}

bool AbortFlag::run(std::function<void(Access&)> call) noexcept try {
  const auto deadline = std::chrono::steady_clock::now() + kTimeout;
  const auto idle = [this] { return !access_->busy; };
  std::unique_lock lock(access_->mutex);
  if (!access_->finished.wait_until(lock, deadline, idle)) return false;
  std::thread([access = access_, call = std::move(call)] {
    try {
      call(*access);
    } catch (const std::exception&) {  // the store is unreachable
    }
    const std::lock_guard done(access->mutex);
    access->busy = false;
    access->finished.notify_all();
  }).detach();
  access_->busy = true;
  return access_->finished.wait_until(lock, deadline, idle);
} catch (const std::exception&) {  // no thread could be started
  return false;
}

void AbortFlag::set(const std::string& reason) noexcept {
  run([text = name_ + " aborted: " + reason](Access& access) {
    static_cast<void>(access.store->compareSet(access.key, std::vector<std::uint8_t>{}, {text.begin(), text.end()}));
  });
}

std::string AbortFlag::reason() noexcept {
  const bool answered = run([](Access& access) {
    access.text.clear();
    if (!access.store->check({access.key})) return;
    const std::vector<std::uint8_t> bytes = access.store->get(access.key);
    access.text.assign(bytes.begin(), bytes.end());
  });
  return answered && !access_->text.starts_with(name_ + " ") ? access_->text : "";
}

}  // namespace weft::process_group
