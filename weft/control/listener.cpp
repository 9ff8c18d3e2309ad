#include "weft/control/listener.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

namespace weft::control {
namespace {

// The process or machine is out of descriptors or memory. New connections wait until some are freed.
bool nothing_left() { return errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM; }

}  // namespace

Listener::Listener(const aggregation::Address& address, EventCounters& counters)
    : counters_(counters), socket_(listen_on(address)) {}

bool Listener::pauses() const { return Clock::now() < pause_end_; }

// Without this check, accept() reports missing descriptors even if no connection is pending.
bool Listener::connection_pending() const {
  pollfd door{watched(), POLLIN, 0};
  return poll(&door, 1, 0) > 0;
}

void Listener::pause() {
  counters_.add(Event::kNoDescriptors);
  pause_end_ = Clock::now() + kPause;
}

int Listener::watched() const { return pauses() ? -1 : socket_.get(); }

files::FileDescriptor Listener::accept() {
  if (!connection_pending()) return files::FileDescriptor(-1);
  files::FileDescriptor peer(accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  const int on = 1;
  if (peer.get() >= 0) {
    setsockopt(peer.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  } else if (nothing_left()) {
    pause();
  }
  return peer;
}

std::pair<files::FileDescriptor, files::FileDescriptor> Listener::prepare_pair() {
  std::array<int, 2> ends{-1, -1};
  if (connection_pending() && socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    pause();
  }
  return {files::FileDescriptor(ends[0]), files::FileDescriptor(ends[1])};
}

}  // namespace weft::control
