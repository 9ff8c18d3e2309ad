#include "weft/control/listener.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

namespace weft::control {
namespace {

// Of the process, of the machine, or of its memory: nobody is let in until something was given back.
bool nothing_left() { return errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM; }

}  // namespace

Listener::Listener(const aggregation::Address& address, Counters& counters)
    : counters_(counters), socket_(listen_on(address)) {}

bool Listener::pauses() const { return Clock::now() < pause_end_; }

bool Listener::somebody_knocks() const {
  pollfd door{socket_.get(), POLLIN, 0};
  return poll(&door, 1, 0) > 0;
}

int Listener::watched() const { return pauses() ? -1 : socket_.get(); }

files::FileDescriptor Listener::accept() {
  // Linux takes a descriptor before it looks whether somebody is there, and would say that none is left to nobody.
  if (pauses() || !somebody_knocks()) return files::FileDescriptor(-1);
  files::FileDescriptor visitor(accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  const int on = 1;
  if (visitor.get() >= 0) {
    setsockopt(visitor.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  } else if (nothing_left()) {
    counters_.add(Event::kNoDescriptors);
    pause_end_ = Clock::now() + kPause;
  }
  return visitor;
}

}  // namespace weft::control
