#include "weft/trace/chrome_trace.h"

#include <cstdint>

#include "weft/files/atomic_file.h"
#include "weft/files/error.h"
#include "weft/mpi/collectives.h"
#include "weft/trace/json.h"

namespace weft::trace {
namespace {

constexpr int kRoot = 0;

// Metadata: how a process or a thread is called.
std::string naming(const std::string& kind, int rank, int thread, const std::string& name) {
  return R"({"ph":"M","name":")" + kind + R"(","pid":)" + std::to_string(rank) + R"(,"tid":)" + std::to_string(thread) +
         R"(,"args":{"name":)" + json_text(name) + "}}";
}

std::string complete(const Event& event, int rank, int thread, const ClockOffset& clock) {
  std::string text = R"({"ph":"X","name":)" + json_text(event.name) + R"(,"pid":)" + std::to_string(rank) +
                     R"(,"tid":)" + std::to_string(thread) + R"(,"ts":)" +
                     json_number(static_cast<double>(event.begin_ns + clock.offset_ns) / 1000) + R"(,"dur":)" +
                     json_number(static_cast<double>(event.duration_ns) / 1000);
  if (event.detail != Span::kNoDetail) text += R"(,"args":{"detail":)" + std::to_string(event.detail) + "}";
  return text + "}";
}

std::string thread_name(const ThreadEvents& thread) {
  std::string name = thread.name.empty() ? "thread " + std::to_string(thread.number) : thread.name;
  if (thread.forgotten > 0) name += " (the first " + std::to_string(thread.forgotten) + " events are forgotten)";
  return name;
}

// Every rank's text one after the other, on the root.
std::string gather_text(const std::string& mine, mpi::CommunicatorView comm) {
  const std::int64_t length = std::ssize(mine);
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(comm.size()));
  const std::vector<std::int64_t> ones(lengths.size(), 1);
  mpi::all_gather(&length, lengths.data(), ones, mpi::Datatype::kInt64, comm);
  std::int64_t total = 0;
  for (const std::int64_t each : lengths) total += each;
  std::string all(comm.rank() == kRoot ? static_cast<std::size_t>(total) : 0, '\0');
  mpi::gather(mine.data(), all.data(), lengths, mpi::Datatype::kUInt8, kRoot, comm);
  return all;
}

// What went wrong on the root, known to all ranks afterwards; empty if nothing did.
std::string tell_all(std::string failure, mpi::CommunicatorView comm) {
  std::int64_t length = std::ssize(failure);
  mpi::broadcast(&length, 1, mpi::Datatype::kInt64, kRoot, comm);
  failure.resize(static_cast<std::size_t>(length));
  mpi::broadcast(failure.data(), length, mpi::Datatype::kUInt8, kRoot, comm);
  return failure;
}

std::string write(const std::filesystem::path& path, const std::string& events) {
  try {
    files::write_atomically(path, R"({"displayTimeUnit":"ms","traceEvents":[)"
                                  "\n" +
                                      events + "\n]}\n");
  } catch (const files::FileError& error) {
    return error.what();
  }
  return {};
}

}  // namespace

std::string chrome_events(const std::vector<ThreadEvents>& threads, int rank, const ClockOffset& clock) {
  std::string text = naming("process_name", rank, 0, "rank " + std::to_string(rank));
  for (const ThreadEvents& thread : threads) {
    text += ",\n" + naming("thread_name", rank, thread.number, thread_name(thread));
    for (const Event& event : thread.events) text += ",\n" + complete(event, rank, thread.number, clock);
  }
  return text;
}

void write_chrome_trace(const std::filesystem::path& path, mpi::CommunicatorView comm) {
  std::string mine = comm.rank() == kRoot ? "" : ",\n";
  mine += chrome_events(recorded(), comm.rank(), clock_offset(comm));
  const std::string all = gather_text(mine, comm);
  const std::string failure = tell_all(comm.rank() == kRoot ? write(path, all) : "", comm);
  if (!failure.empty()) throw files::FileError(failure);
}

}  // namespace weft::trace
