#include "weft/trace/chrome_trace.h"

#include <cstdint>

#include "weft/files/atomic_file.h"
#include "weft/files/error.h"
#include "weft/trace/conversation.h"
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
std::string gather_text(const std::string& mine, const Conversation& talk) {
  if (talk.rank() != kRoot) {
    talk.send_text(mine, kRoot);
    return {};
  }
  std::string all = mine;
  for (int rank = 1; rank < talk.size(); ++rank) all += talk.receive_text(rank);
  return all;
}

// What went wrong on the root, known to all ranks afterwards; empty if nothing did.
std::string tell_all(const std::string& failure, const Conversation& talk) {
  if (talk.rank() != kRoot) return talk.receive_text(kRoot);
  for (int rank = 1; rank < talk.size(); ++rank) talk.send_text(failure, rank);
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

void write_chrome_trace(const std::filesystem::path& path, mpi::Team& team) {
  const Conversation talk(team, "trace");
  std::string mine = team.rank() == kRoot ? "" : ",\n";
  mine += chrome_events(recorded(), team.rank(), clock_offset(talk));
  const std::string all = gather_text(mine, talk);
  const std::string failure = tell_all(team.rank() == kRoot ? write(path, all) : "", talk);
  if (!failure.empty()) throw files::FileError(failure);
}

}  // namespace weft::trace
