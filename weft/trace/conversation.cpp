#include "weft/trace/conversation.h"

#include <cstring>
#include <functional>
#include <memory>
#include <string_view>

#include "weft/mpi/error.h"
#include "weft/mpi/exchange.h"

namespace weft::trace {
namespace {

// The largest of the ranks' next transfer numbers: no rank has used it yet, so no other message has its tag.
int shared_tag(mpi::Team& team, const char* subject) {
  team.enter();
  const std::uint64_t signature = std::hash<std::string_view>{}(subject);
  const auto outcome =
      team.agree(mpi::Direction::kForward, {.signature = signature, .value = team.next_transfer(), .failed = false});
  if (!outcome.same_call()) team.disagree(subject);
  return team.transfer_tag(outcome.value_max);
}

// Who gives up tells the others, or they would wait as long again.
void complete(std::unique_ptr<mpi::Operation> operation, mpi::Team& team, const char* subject) {
  try {
    mpi::complete(*operation, {.operation = subject, .team = &team});
  } catch (const mpi::TimeoutError& error) {
    team.raise_alarm(error.what());
    throw;
  }
}

}  // namespace

Conversation::Conversation(mpi::Team& team, const char* subject)
    : team_(team), subject_(subject), tag_(shared_tag(team, subject)) {}

// The requests own the memory: a wait that ends early leaves them behind.
void Conversation::send(const std::string& bytes, int dest) const {
  const auto kept = std::make_shared<std::string>(bytes);
  complete(mpi::exchange({{dest, kept->data(), std::ssize(*kept)}}, {}, tag_, team_.control(), kept), team_, subject_);
}

std::string Conversation::receive(std::int64_t bytes, int source) const {
  const auto kept = std::make_shared<std::string>(static_cast<std::size_t>(bytes), '\0');
  complete(mpi::exchange({}, {{source, kept->data(), bytes}}, tag_, team_.control(), kept), team_, subject_);
  return *kept;
}

void Conversation::send_text(const std::string& text, int dest) const {
  send(bytes_of(std::ssize(text)), dest);
  send(text, dest);
}

std::string Conversation::receive_text(int source) const {
  const std::int64_t length = number_in(receive(sizeof(std::int64_t), source));
  return receive(length, source);
}

std::string bytes_of(std::int64_t number) {
  std::string bytes(sizeof number, '\0');
  std::memcpy(bytes.data(), &number, sizeof number);
  return bytes;
}

std::int64_t number_in(const std::string& bytes, std::size_t index) {
  std::int64_t number = 0;
  std::memcpy(&number, bytes.data() + index * sizeof number, sizeof number);
  return number;
}

}  // namespace weft::trace
