// Sums between network namespaces over links with limited rate or packet loss.
//
// links <loss percent> <rate in Mbit/s, 0 for no limit> [workers...]: prints one JSON line per figure: the time of one
// sum of 16 MiB float32 and the bytes sent over a worker's link. The ratio is relative to the transmission time of the
// bytes; 0 without a limit.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>

#include "tests/aggregation/namespaces.h"

namespace {

using namespace weft::aggregation;

constexpr std::size_t kElements = (16U << 20) / 4;

std::uint64_t bytes_sent(const Namespaces& namespaces) {
  std::uint64_t bytes = 0;
  namespaces.run_in("w0", [&] {
    // /proc/thread-self/net is this thread's namespace: "eth0: received packets … (8 fields) sent …"
    std::ifstream file("/proc/thread-self/net/dev");
    for (std::string word; file >> word;) {
      if (word != "eth0:") continue;
      for (int field = 0; field < 9 && file >> word;) ++field;
      bytes = std::stoull(word);
    }
  });
  return bytes;
}

void measure(int workers, const std::string& loss, double rate) {
  const std::string limit = rate > 0 ? " --rate " + std::to_string(static_cast<int>(rate)) : "";
  const Namespaces namespaces(workers, "--loss " + loss + limit);
  LiveSwitch target(namespaces.switch_transport());
  LiveOptions options{.workers = workers, .packet_elements = 320};
  options.make_transport = [&](int rank) { return namespaces.worker_transport(rank); };
  LiveJob job(target, options);
  double seconds = 0;
  const std::uint64_t before = bytes_sent(namespaces);
  job.run([&](int rank, WorkerSession& session) {
    std::vector<float> data(kElements, static_cast<float>(rank));
    const auto start = std::chrono::steady_clock::now();
    session.all_reduce(std::span<const float>(data), std::span(data));
    if (rank == 0) seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const float expected = static_cast<float>(workers * (workers - 1)) / 2;
    if (std::ranges::any_of(data, [&](float x) { return x != expected; })) std::puts("WRONG SUMS");
  });
  const double megabytes = 1e-6 * static_cast<double>(bytes_sent(namespaces) - before);
  const double least = rate > 0 ? 8e-6 * 4 * kElements / rate : 0;
  const WorkerStatistics statistics = job.sessions[0]->statistics();
  std::printf(
      "{\"name\": \"aggregation/links/%d/loss_%s\", \"value\": %.3f, \"unit\": \"s\", \"peer\": \"%.1f MB sent on "
      "each link, %llu packets retransmitted, payload alone %.3f s\", \"ratio\": %.3f}\n",
      workers, loss.c_str(), seconds, megabytes, static_cast<unsigned long long>(statistics.retransmissions), least,
      least > 0 ? seconds / least : 0.0);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return std::fprintf(stderr, "usage: %s <loss percent> <Mbit/s or 0> [workers...]\n", argv[0]), 2;
  if (!Namespaces::possible()) return std::puts("network namespaces are not permitted here: skipped"), 0;
  std::vector<int> workers{4, 8};
  if (argc > 3) workers.clear();
  for (int i = 3; i < argc; ++i) workers.push_back(std::atoi(argv[i]));
  for (const int count : workers) measure(count, argv[1], std::atof(argv[2]));
  return 0;
}
