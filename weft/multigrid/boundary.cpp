#include "weft/multigrid/boundary.h"

#include <utility>

namespace weft::multigrid {

std::unique_ptr<IncomingState> Boundary::post_receive(const Level& level) {
  const Place place = hierarchy_.place(level.number(), level.begin() - 1);
  return transport_.receive(*level.before(), level.number(), evaluator_.packed_bytes(place));
}

State Boundary::receive(const Level& level, IncomingState& incoming) {
  const Place place = hierarchy_.place(level.number(), level.begin() - 1);
  const auto start = Recorder::Clock::now();
  State u = evaluator_.unpack(incoming.wait(), place);
  const auto stop = Recorder::Clock::now();
  evaluator_.statistics().seconds_waiting += std::chrono::duration<double>(stop - start).count();
  if (Recorder* recorder = evaluator_.recorder()) {
    Task task{.kind = TaskKind::kReceive, .level = place.level, .index = place.index, .peer = *level.before()};
    u.set_producer(recorder->add(std::move(task), start, stop));
  }
  return u;
}

void Boundary::send(const Level& level, const State& u) {
  const Place place = hierarchy_.place(level.number(), level.end() - 1);
  const auto start = Recorder::Clock::now();
  std::optional<Packed> message = evaluator_.pack(u, place);
  Statistics& statistics = evaluator_.statistics();
  ++statistics.messages_sent;
  if (message) statistics.bytes_sent += static_cast<std::int64_t>(message->bytes.size());
  transport_.send(*level.after(), level.number(), std::move(message), evaluator_.packed_bytes(place));
  if (Recorder* recorder = evaluator_.recorder()) {
    Task task{.kind = TaskKind::kSend, .level = place.level, .index = place.index, .peer = *level.after()};
    if (u.producer() >= 0) task.needs.push_back(u.producer());
    recorder->add(std::move(task), start, Recorder::Clock::now());
  }
}

}  // namespace weft::multigrid
