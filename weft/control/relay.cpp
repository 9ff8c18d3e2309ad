#include "weft/control/relay.h"

#include <sys/socket.h>

#include <cerrno>

namespace weft::control {
namespace {

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

// Sends as many of `bytes` as the socket accepts, and removes them. Returns false on failure.
bool flush(int fd, std::string& bytes) {
  if (bytes.empty()) return true;
  const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (sent < 0) return would_block();
  bytes.erase(0, static_cast<std::size_t>(sent));
  return true;
}

// Reads up to `most` bytes into the empty `bytes`. Returns false at the end of the stream and on failure.
bool fill(int fd, std::string& bytes, std::size_t most) {
  bytes.resize(most);
  const ssize_t got = recv(fd, bytes.data(), most, 0);
  bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return got > 0 || (got < 0 && would_block());
}

short events(bool in, bool out) { return static_cast<short>((in ? POLLIN : 0) | (out ? POLLOUT : 0)); }

}  // namespace

std::array<pollfd, 2> Relay::watched(bool may_read) const {
  const bool idle = replies_.empty() && requests_.empty();
  const auto of_client = static_cast<short>(events(may_read && idle, !replies_.empty()) | POLLRDHUP);
  return {pollfd{client_.get(), of_client, 0}, pollfd{server_.get(), events(replies_.empty(), !requests_.empty()), 0}};
}

bool Relay::advance(bool may_read, double& cost) {
  if (!flush(client_.get(), replies_)) return false;
  while (replies_.empty()) {
    if (!fill(server_.get(), replies_, kReplyBytes)) return false;
    if (replies_.empty()) break;
    if (!flush(client_.get(), replies_)) return false;
  }
  if (!flush(server_.get(), requests_)) return false;
  if (!may_read || !replies_.empty() || !requests_.empty()) return true;
  if (!fill(client_.get(), requests_, kStepBytes)) return false;
  cost += meter_.cost(requests_);
  return flush(server_.get(), requests_);
}

}  // namespace weft::control
