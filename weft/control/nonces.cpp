#include "weft/control/nonces.h"

#include "weft/control/request_mac.h"

namespace weft::control {

Nonces::Nonces(std::chrono::milliseconds life, std::size_t capacity) : life_(life), capacity_(capacity) {}

std::string Nonces::issue(Clock::time_point now) {
  std::string nonce = fresh_nonce();
  const std::lock_guard lock(mutex_);
  while (order_.size() >= capacity_) {
    issued_.erase(order_.front());
    order_.pop_front();
  }
  order_.push_back(nonce);
  issued_.emplace(nonce, now);
  return nonce;
}

bool Nonces::take(const std::string& nonce, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  const auto found = issued_.find(nonce);
  if (found == issued_.end()) return false;
  const bool fresh = now - found->second <= life_;
  issued_.erase(found);  // order_ drops it when it is the oldest
  return fresh;
}

}  // namespace weft::control
