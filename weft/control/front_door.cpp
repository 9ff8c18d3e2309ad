#include "weft/control/front_door.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

namespace weft::control {
namespace {

constexpr int kLookEveryMs = 200;

// The number in gRPC's "fd:12".
int descriptor_of(const std::string& peer) {
  int fd = -1;
  if (peer.starts_with("fd:")) std::from_chars(peer.data() + 3, peer.data() + peer.size(), fd);
  return fd;
}

}  // namespace

FrontDoor::FrontDoor(const aggregation::Address& listen, const DoorLimits& limits, Counters& counters)
    : limits_(limits), counters_(counters), listener_(listen, counters) {}

FrontDoor::~FrontDoor() { close(); }

void FrontDoor::open(Welcome welcome) {
  welcome_ = std::move(welcome);
  thread_ = std::thread([this] { run(); });
}

void FrontDoor::close() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  bell_.ring();
  if (thread_.joinable()) thread_.join();
}

std::size_t FrontDoor::connections() const {
  const std::lock_guard lock(mutex_);
  return connections_.size();
}

std::shared_ptr<const Visitor> FrontDoor::request_from(const std::string& peer) {
  const std::lock_guard lock(mutex_);
  const auto found = connections_.find(descriptor_of(peer));
  if (found == connections_.end()) return nullptr;
  return found->second.visitor;
}

void FrontDoor::admit(const std::string& peer) {
  const std::lock_guard lock(mutex_);
  const auto found = connections_.find(descriptor_of(peer));
  if (found == connections_.end()) return;
  found->second.admitted = true;
  found->second.last = Clock::now();
}

void FrontDoor::run() {
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (closing_) return;
    }
    wait_for_something();
    let_in();
    show_out_the_silent();
  }
}

void FrontDoor::wait_for_something() {
  std::vector<pollfd> watched{{listener_.watched(), POLLIN, 0}, {bell_.fd(), POLLIN, 0}};
  std::vector<int> owners{-1, -1};
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [fd, connection] : connections_) {
      watched.push_back({connection.copy.get(), POLLRDHUP, 0});
      owners.push_back(fd);
    }
  }
  poll(watched.data(), watched.size(), kLookEveryMs);
  for (std::size_t i = 2; i < watched.size(); ++i) {
    if ((watched[i].revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0) forget_gone(owners[i]);
  }
}

void FrontDoor::forget_gone(int fd) {
  const std::lock_guard lock(mutex_);
  connections_.erase(fd);
}

bool FrontDoor::is_full(std::uint32_t host) const {
  const auto of_host = std::count_if(connections_.begin(), connections_.end(),
                                     [&](const auto& entry) { return entry.second.visitor->remote.ipv4 == host; });
  return connections_.size() >= limits_.connections ||
         static_cast<std::size_t>(of_host) >= limits_.connections_per_host;
}

void FrontDoor::let_in() {
  while (true) {
    files::FileDescriptor copy = listener_.spare();
    if (copy.get() < 0) return;
    files::FileDescriptor visitor = listener_.accept();
    if (visitor.get() < 0) return;
    dup3(visitor.get(), copy.get(), O_CLOEXEC);
    const Visitor who{remote_address(visitor.get()), local_address(visitor.get())};
    {
      const std::lock_guard lock(mutex_);
      // gRPC may have closed a descriptor of this number before its peer's end was seen here: the new one counts.
      connections_.erase(visitor.get());
      if (is_full(who.remote.ipv4)) {
        counters_.add(Event::kDroppedTooMany);
        continue;
      }
      connections_.emplace(visitor.get(),
                           Connection{std::move(copy), std::make_shared<const Visitor>(who), false, Clock::now()});
    }
    welcome_(visitor.release());
  }
}

void FrontDoor::show_out_the_silent() {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  for (auto& [fd, connection] : connections_) {
    const bool answering = connection.admitted && connection.visitor.use_count() > 1;
    if (answering) connection.last = now;
  }
  std::erase_if(connections_, [&](const auto& entry) {
    const Connection& connection = entry.second;
    if (now - connection.last < (connection.admitted ? limits_.idle : limits_.first_request)) return false;
    if (!connection.admitted) counters_.add(Event::kDroppedSlow);
    shutdown(connection.copy.get(), SHUT_RDWR);  // gRPC then closes its own
    return true;
  });
}

}  // namespace weft::control
