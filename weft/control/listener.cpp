#include "weft/control/listener.h"

#include <fcntl.h>
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

// Linux takes a descriptor before it looks whether somebody is there, and would say to nobody that none is left.
bool Listener::somebody_waits() const {
  pollfd door{watched(), POLLIN, 0};
  return poll(&door, 1, 0) > 0;
}

void Listener::pause() {
  counters_.add(Event::kNoDescriptors);
  pause_end_ = Clock::now() + kPause;
}

int Listener::watched() const { return pauses() ? -1 : socket_.get(); }

files::FileDescriptor Listener::accept() {
  if (!somebody_waits()) return files::FileDescriptor(-1);
  files::FileDescriptor visitor(accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  const int on = 1;
  if (visitor.get() >= 0) {
    setsockopt(visitor.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  } else if (nothing_left()) {
    pause();
  }
  return visitor;
}

files::FileDescriptor Listener::spare() {
  if (!somebody_waits()) return files::FileDescriptor(-1);
  files::FileDescriptor any(fcntl(socket_.get(), F_DUPFD_CLOEXEC, 0));
  if (any.get() < 0) pause();
  return any;
}

}  // namespace weft::control
