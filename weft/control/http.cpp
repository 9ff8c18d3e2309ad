#include "weft/control/http.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <vector>

namespace weft::control {
namespace {

constexpr int kPollIntervalMs = 100;

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

HttpServer::HttpServer(const aggregation::Address& listen, Pages pages, EventCounters& counters,
                       const HttpLimits& limits)
    : pages_(std::move(pages)), counters_(counters), limits_(limits), listener_(listen, counters) {
  thread_ = std::thread([this] { run(); });
}

HttpServer::~HttpServer() {
  stopping_ = true;
  wakeup_.notify();
  thread_.join();
}

void HttpServer::run() {
  while (!stopping_) {
    std::vector<pollfd> watched{{wakeup_.fd(), POLLIN, 0}, {listener_.watched(), POLLIN, 0}};
    for (const auto& [fd, exchange] : exchanges_) {
      watched.push_back({fd, static_cast<short>(exchange.response.empty() ? POLLIN : POLLOUT), 0});
    }
    poll(watched.data(), watched.size(), kPollIntervalMs);
    accept_some();
    for (auto entry = exchanges_.begin(); entry != exchanges_.end();) {
      entry = advance(entry->second) ? std::next(entry) : exchanges_.erase(entry);
    }
  }
}

void HttpServer::accept_some() {
  while (true) {
    files::FileDescriptor peer = listener_.accept();
    if (peer.get() < 0) return;
    if (exchanges_.size() >= limits_.connections) {
      counters_.add(Event::kHttpDropped);
      continue;
    }
    const int fd = peer.get();
    exchanges_.emplace(fd, Exchange{std::move(peer), Clock::now() + limits_.timeout, "", "", 0});
  }
}

bool HttpServer::advance(Exchange& exchange) {
  if (Clock::now() > exchange.deadline) {
    counters_.add(Event::kHttpDropped);
    // Discards unsent data, which the kernel would otherwise keep for a client that does not read.
    const linger at_once{1, 0};
    setsockopt(exchange.socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    return false;
  }
  return exchange.response.empty() ? read_some(exchange) : write_some(exchange);
}

bool HttpServer::read_some(Exchange& exchange) {
  char buffer[2048];
  const ssize_t count = recv(exchange.socket.get(), buffer, sizeof(buffer), 0);
  if (count < 0) return would_block();
  if (count == 0) return false;
  exchange.request.append(buffer, static_cast<std::size_t>(count));
  if (exchange.request.find("\r\n\r\n") != std::string::npos) {
    exchange.response = answer_request(pages_, exchange.request);
  } else if (exchange.request.size() > limits_.request_bytes) {
    counters_.add(Event::kHttpDropped);
    exchange.response = refuse_request("431 Request Header Fields Too Large");
  }
  return exchange.response.empty() || write_some(exchange);
}

bool HttpServer::write_some(Exchange& exchange) {
  const std::string& all = exchange.response;
  const ssize_t count =
      send(exchange.socket.get(), all.data() + exchange.sent, all.size() - exchange.sent, MSG_NOSIGNAL);
  if (count < 0) return would_block();
  exchange.sent += static_cast<std::size_t>(count);
  if (exchange.sent < all.size()) return true;
  counters_.add(Event::kHttpServed);
  return false;
}

}  // namespace weft::control
