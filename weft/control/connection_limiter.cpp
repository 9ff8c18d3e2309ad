#include "weft/control/connection_limiter.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

namespace weft::control {
namespace {

constexpr int kPollIntervalMs = 200;

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
    {
      const std::lock_guard lock(mutex_);
      if (closing_) return;
    }
    wait_for_events();
    accept_pending();
    close_idle();
  }
}

void ConnectionLimiter::wait_for_events() {
  std::vector<pollfd> watched{{listener_.watched(), POLLIN, 0}, {wakeup_.fd(), POLLIN, 0}};
  std::vector<int> owners{-1, -1};
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [fd, connection] : connections_) {
      watched.push_back({connection.copy.get(), POLLRDHUP, 0});
      owners.push_back(fd);
    }
  }
  poll(watched.data(), watched.size(), kPollIntervalMs);
  for (std::size_t i = 2; i < watched.size(); ++i) {
    if ((watched[i].revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0) forget(owners[i]);
  }
}

void ConnectionLimiter::forget(int fd) {
  const std::lock_guard lock(mutex_);
  connections_.erase(fd);
}

bool ConnectionLimiter::is_full(std::uint32_t host) const {
  const auto of_host = std::count_if(connections_.begin(), connections_.end(),
                                     [&](const auto& entry) { return entry.second.peer->remote.ipv4 == host; });
  return connections_.size() >= limits_.connections ||
         static_cast<std::size_t>(of_host) >= limits_.connections_per_host;
}

void ConnectionLimiter::accept_pending() {
  while (true) {
    files::FileDescriptor copy = listener_.spare();
    if (copy.get() < 0) return;
    files::FileDescriptor peer = listener_.accept();
    if (peer.get() < 0) return;
    dup3(peer.get(), copy.get(), O_CLOEXEC);
    const Peer who{remote_address(peer.get()), local_address(peer.get())};
    {
      const std::lock_guard lock(mutex_);
      // gRPC may have closed a descriptor with this number before this thread noticed. The new connection replaces it.
      connections_.erase(peer.get());
      if (is_full(who.remote.ipv4)) {
        counters_.add(Event::kDroppedTooMany);
        continue;
      }
      connections_.emplace(peer.get(),
                           Connection{std::move(copy), std::make_shared<const Peer>(who), false, Clock::now()});
    }
    on_accept_(peer.release());
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
    shutdown(connection.copy.get(), SHUT_RDWR);  // gRPC then closes its own descriptor
    return true;
  });
}

}  // namespace weft::control
