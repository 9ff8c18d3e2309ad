#include "weft/control/http.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/control/connect.h"
#include "tests/control/no_descriptors.h"
#include "tests/eventually.h"
#include "weft/control/status.h"

namespace weft::control {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using namespace std::chrono_literals;
constexpr std::size_t kPageBytes = std::size_t{48}
                                   << 20;  // more than the kernel buffers for a client that does not read

class Http : public ::testing::Test {
 protected:
  void start(HttpLimits limits = {}) {
    Pages pages;
    pages["/metrics"] = {"text/plain; version=0.0.4", [] { return std::string("weft 1\n"); }};
    pages["/"] = {"text/html", [] { return std::string(kPageBytes, 'x'); }};
    server_ = std::make_unique<HttpServer>(aggregation::Address{kLoopback, 0}, pages, counters_, limits);
  }
  [[nodiscard]] int connected() const { return connect_to(server_->port()); }
  static std::string rest(int fd) {
    std::string text;
    char buffer[65536];
    for (ssize_t n = 0; (n = recv(fd, buffer, sizeof(buffer), 0)) > 0;)
      text.append(buffer, static_cast<std::size_t>(n));
    close(fd);
    return text;
  }
  [[nodiscard]] std::string ask(const std::string& request) const {
    const int fd = connected();
    EXPECT_EQ(send(fd, request.data(), request.size(), MSG_NOSIGNAL), static_cast<ssize_t>(request.size()));
    return rest(fd);
  }

  EventCounters counters_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(Http, ServesOnlyItsPages) {
  start();
  EXPECT_THAT(ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), EndsWith("\r\n\r\nweft 1\n"));
  EXPECT_THAT(ask("GET /metrics?x=1 HTTP/1.0\r\n\r\n"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(ask("HEAD /metrics HTTP/1.1\r\n\r\n"), EndsWith("\r\n\r\n"));
  EXPECT_THAT(ask("GET /../etc/passwd HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(ask("POST /metrics HTTP/1.1\r\nContent-Length: 0\r\n\r\n"), StartsWith("HTTP/1.1 405"));
  EXPECT_THAT(ask("nonsense\r\n\r\n"), StartsWith("HTTP/1.1 400"));
  EXPECT_EQ(counters_.of(Event::kHttpServed), 6U);
}

TEST_F(Http, LargePagesArriveComplete) {
  start();
  const std::string text = ask("GET / HTTP/1.1\r\n\r\n");
  EXPECT_EQ(text.size() - text.find("\r\n\r\n") - 4, kPageBytes);
}

TEST_F(Http, EndlessHeadersAreRefused) {
  start({.request_bytes = 1000});
  EXPECT_THAT(ask("GET / HTTP/1.1\r\nX: " + std::string(2000, 'x')), StartsWith("HTTP/1.1 431"));
  EXPECT_EQ(counters_.of(Event::kHttpDropped), 1U);
}

TEST_F(Http, SlowClientsAreDroppedAndOthersServed) {
  start({.timeout = 3s});  // with sanitizers, the page alone takes a second
  const int silent = connected();
  const int unread = connected();  // requests a large page and never reads it
  const int small = 4096;
  setsockopt(unread, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
  const std::string request = "GET / HTTP/1.1\r\n\r\n";
  ASSERT_GT(send(unread, request.data(), request.size(), 0), 0);
  EXPECT_THAT(ask("GET /metrics HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(rest(silent), "");  // returns when the server drops the connection
  while (counters_.of(Event::kHttpDropped) < 2) std::this_thread::sleep_for(5ms);
  EXPECT_LT(rest(unread).size(), kPageBytes);
}

TEST_F(Http, TooManyConnectionsAreDropped) {
  start({.connections = 2});
  const int a = connected();
  const int b = connected();
  // Until the server has accepted both, it may accept a third.
  const auto dropped = [&] { return rest(connected()).empty() && counters_.of(Event::kHttpDropped) > 0; };
  eventually(dropped, "a dropped connection");
  close(a);
  close(b);
}

// The listener stays readable then, so a loop without a pause would use a whole core.
TEST_F(Http, WaitsForFreeDescriptorsAndThenServes) {
  start();
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  {
    const NoDescriptors all_taken;
    connect_to(fd, server_->port());
    while (counters_.of(Event::kNoDescriptors) == 0) std::this_thread::sleep_for(1ms);
    const auto begin = std::chrono::steady_clock::now();
    std::this_thread::sleep_for(1s);
    const auto looks = counters_.of(Event::kNoDescriptors);
    EXPECT_LE(looks, 2 + (std::chrono::steady_clock::now() - begin) / Listener::kPause);
  }
  const std::string request = "GET /metrics HTTP/1.1\r\n\r\n";
  ASSERT_GT(send(fd, request.data(), request.size(), 0), 0);
  EXPECT_THAT(rest(fd), StartsWith("HTTP/1.1 200"));
}

Status status_with(const EventCounters& counters) {
  Status status;
  status.counters = &counters;
  status.version = "1.2";
  status.jobs.epoch = 5;
  aggregation::JobStatus job;
  job.name = "a\"<b>";
  job.session = 0xAB;
  job.workers = 4;
  job.counters.sums = 17;
  job.counters.reject(aggregation::Rejected::kForged);
  status.jobs.jobs.push_back(job);
  return status;
}

TEST(Metrics, AreInPrometheusFormat) {
  EventCounters counters;
  counters.add(Event::kRefusedWrongKey);
  const std::string text = metrics(status_with(counters));
  EXPECT_THAT(text, HasSubstr("# TYPE weft_switch_sums_total counter\n"
                              "weft_switch_sums_total{job=\"a\\\"<b>\",session=\"00000000000000ab\"} 17\n"));
  EXPECT_THAT(text, HasSubstr("weft_switch_control_events_total{event=\"wrong_key\"} 1\n"));
  EXPECT_THAT(text, HasSubstr(",cause=\"forged\"} 1\n"));
  EXPECT_THAT(text, EndsWith("\n"));
  // Each family appears once.
  std::size_t families = 0;
  for (auto at = text.find("# TYPE "); at != std::string::npos; at = text.find("# TYPE ", at + 1)) {
    const std::string line = text.substr(at, text.find('\n', at) - at);
    EXPECT_EQ(text.find(line, at + 1), std::string::npos) << line;
    ++families;
  }
  EXPECT_GE(families, 15U);
}

TEST(Page, ShowsJobsAndEscapesTheirNames) {
  const EventCounters counters;
  const std::string text = page(status_with(counters));
  EXPECT_THAT(text, HasSubstr("a&quot;&lt;b&gt;"));
  EXPECT_THAT(text, Not(HasSubstr("<b>")));
  EXPECT_THAT(text, HasSubstr("0 of 4"));
}

}  // namespace
}  // namespace weft::control
