#include "weft/control/connection_limiter.h"

#include <poll.h>

#include <algorithm>
#include <charconv>
#include <set>

namespace weft::control {
namespace {

constexpr int kPollIntervalMs = 200;
constexpr int kThrottledMs = 10;  // while a client waits for its budget
constexpr short kClosed = POLLRDHUP | POLLHUP | POLLERR | POLLNVAL;

// Parses gRPC's "fd:12"; -1 if it is something else.
int descriptor_of(const std::string& peer) {
  int fd = -1;
  if (peer.starts_with("fd:")) std::from_chars(peer.data() + 3, peer.data() + peer.size(), fd);
  return fd;
}

}  // namespace

ConnectionLimiter::ConnectionLimiter(const aggregation::Address& listen, const ConnectionLimits& limits,
                                     EventCounters& counters)
    : limits_(limits), counters_(counters), listener_(listen, counters) {}

ConnectionLimiter::~ConnectionLimiter() { close(); }

void ConnectionLimiter::open(OnAccept on_accept) {
  on_accept_ = std::move(on_accept);
  thread_ = std::thread([this] { run(); });
}

void ConnectionLimiter::close() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  wakeup_.notify();
  if (thread_.joinable()) thread_.join();
}

std::size_t ConnectionLimiter::connections() const {
  const std::lock_guard lock(mutex_);
  return connections_.size();
}

std::shared_ptr<const Peer> ConnectionLimiter::request_from(const std::string& peer) {
  const std::lock_guard lock(mutex_);
  const auto found = connections_.find(descriptor_of(peer));
  if (found == connections_.end()) return nullptr;
  return found->second.peer;
}

void ConnectionLimiter::admit(const std::string& peer) {
  const std::lock_guard lock(mutex_);
  const auto found = connections_.find(descriptor_of(peer));
  if (found == connections_.end()) return;
  found->second.admitted = true;
  found->second.last = Clock::now();
}

void ConnectionLimiter::run() {
  while (true) {
    relay(wait_for_events());
    {
      const std::lock_guard lock(mutex_);
      if (closing_) return connections_.clear();
    }
    if (accepting_) accept_pending();
    close_idle();
  }
}

bool ConnectionLimiter::may_read(const Connection& connection, Clock::time_point now) const {
  if (!connection.budget.has_tokens(now)) return false;
  return connection.admitted || hosts_.at(connection.peer->remote.ipv4).has_tokens(now);
}

std::vector<ConnectionLimiter::Ready> ConnectionLimiter::wait_for_events() {
  std::vector<pollfd> watched{{accepting_ ? listener_.watched() : -1, POLLIN, 0}, {wakeup_.fd(), POLLIN, 0}};
  const std::size_t own = watched.size();
  std::vector<int> owners;
  bool throttled = false;
  {
    const std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    for (auto& [fd, connection] : connections_) {
      const bool may = may_read(connection, now);
      throttled = throttled || !may;
      const auto both = connection.relay.watched(may);
      watched.insert(watched.end(), both.begin(), both.end());
      owners.push_back(fd);
    }
  }
  poll(watched.data(), watched.size(), throttled ? kThrottledMs : kPollIntervalMs);
  std::vector<Ready> ready;
  for (std::size_t i = 0; i < owners.size(); ++i) {
    const short client = watched[own + 2 * i].revents;
    const short server = watched[own + 2 * i + 1].revents;
    // The last replies of a server that has closed may still be unread.
    const bool closed = (client & kClosed) != 0 || ((server & kClosed) != 0 && (server & POLLIN) == 0);
    if (client != 0 || server != 0) ready.push_back({owners[i], closed});
  }
  return ready;
}

void ConnectionLimiter::relay(const std::vector<Ready>& ready) {
  const auto middle = std::ranges::lower_bound(ready, first_, {}, &Ready::fd);
  std::vector<Ready> in_turn(middle, ready.end());
  in_turn.insert(in_turn.end(), ready.begin(), middle);
  if (!in_turn.empty()) first_ = in_turn.front().fd + 1;
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  for (const auto& [fd, closed] : in_turn) {
    const auto found = connections_.find(fd);
    if (closed || !advance(found->second, now)) connections_.erase(found);
  }
}

bool ConnectionLimiter::advance(Connection& connection, Clock::time_point now) {
  double cost = 0;
  const bool open = connection.relay.advance(may_read(connection, now), cost);
  connection.budget.take(cost, now);
  if (!connection.admitted) hosts_.at(connection.peer->remote.ipv4).take(cost, now);
  return open;
}

bool ConnectionLimiter::is_full(std::uint32_t host) const {
  const auto of_host = std::count_if(connections_.begin(), connections_.end(),
                                     [&](const auto& entry) { return entry.second.peer->remote.ipv4 == host; });
  return connections_.size() >= limits_.connections ||
         static_cast<std::size_t>(of_host) >= limits_.connections_per_host;
}

void ConnectionLimiter::accept_pending() {
  while (true) {
    auto [inner, outer] = listener_.prepare_pair();
    if (inner.get() < 0) return;
    files::FileDescriptor client = listener_.accept();
    if (client.get() < 0) return;
    const aggregation::Address remote = remote_address(client.get());
    const Peer who{remote, local_address(client.get()), is_own_address(remote.ipv4)};
    {
      const std::lock_guard lock(mutex_);
      // gRPC may have closed a descriptor with this number before this thread noticed. The new connection replaces it.
      connections_.erase(inner.get());
      if (is_full(remote.ipv4)) {
        counters_.add(Event::kDroppedTooMany);
        continue;
      }
      const auto now = Clock::now();
      hosts_.try_emplace(remote.ipv4, limits_.host_burst, limits_.host_rate, now);
      connections_.emplace(inner.get(),
                           Connection{Relay(std::move(client), std::move(outer)), std::make_shared<const Peer>(who),
                                      TokenBucket(limits_.burst, limits_.rate, now), false, now});
    }
    on_accept_(inner.release());
  }
}

void ConnectionLimiter::close_idle() {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  for (auto& [fd, connection] : connections_) {
    const bool answering = connection.admitted && connection.peer.use_count() > 1;
    if (answering) connection.last = now;
  }
  std::erase_if(connections_, [&](const auto& entry) {
    const Connection& connection = entry.second;
    if (now - connection.last < (connection.admitted ? limits_.idle : limits_.first_request)) return false;
    if (!connection.admitted) counters_.add(Event::kDroppedSlow);
    return true;  // gRPC then closes its end
  });
  // A budget outlives its connections until it is full, so that reconnecting does not renew it.
  std::set<std::uint32_t> connected;
  for (const auto& [fd, connection] : connections_) connected.insert(connection.peer->remote.ipv4);
  std::erase_if(hosts_,
                [&](const auto& entry) { return !connected.contains(entry.first) && entry.second.is_full(now); });
}

}  // namespace weft::control
