#include "weft/mpi/message/text_collectives.h"

#include <cstdint>
#include <memory>
#include <utility>

#include "weft/mpi/agreement.h"
#include "weft/mpi/chunks.h"
#include "weft/mpi/collectives.h"
#include "weft/mpi/fingerprint.h"

namespace weft::mpi {
namespace {

// The requests own it: MPI may still use it after a wait that ended early.
struct Gathered {
  Gathered(std::string text, std::size_t ranks)
      : mine(std::move(text)), length(std::ssize(mine)), ones(ranks, 1), lengths(ranks) {}

  [[nodiscard]] std::vector<std::string> split() const {
    std::vector<std::string> texts;
    std::size_t first = 0;
    for (const std::int64_t count : lengths) {
      texts.push_back(all.substr(first, static_cast<std::size_t>(count)));
      first += static_cast<std::size_t>(count);
    }
    return texts;
  }

  std::string mine;
  std::int64_t length;
  std::vector<std::int64_t> ones, lengths;
  std::string all;
};

struct Broadcasted {
  std::int64_t length = 0;
  std::string text;
};

void wait(Request& request, Communicator& communicator, const char* operation) {
  alarm_on_timeout(communicator, [&] { request.wait({.operation = operation, .communicator = &communicator}); });
}

}  // namespace

std::vector<std::string> all_gather_text(Communicator& communicator, const std::string& text, const char* operation) {
  if (communicator.size() == 1) return {text};
  const auto gathered = std::make_shared<Gathered>(text, static_cast<std::size_t>(communicator.size()));
  const CommView comm = communicator.control();
  auto& [mine, length, ones, lengths, all] = *gathered;
  Request sizes(gathered);
  all_gather_start(&length, lengths.data(), ones, Datatype::kInt64, comm, sizes);
  wait(sizes, communicator, operation);
  all.resize(static_cast<std::size_t>(total_of(lengths)));
  Request contents(gathered);
  all_gather_start(mine.data(), all.data(), lengths, Datatype::kUInt8, comm, contents);
  wait(contents, communicator, operation);
  return gathered->split();
}

std::string broadcast_text(Communicator& communicator, const std::string& text, int root, const char* operation) {
  if (communicator.size() == 1) return text;
  const std::uint64_t signature = Fingerprint("broadcast_text").add(operation).add(root).value();
  require_agreement(communicator, {.signature = signature},
                    std::string(operation) + " (broadcast from rank " + std::to_string(root) + ")");
  const auto data = std::make_shared<Broadcasted>();
  if (communicator.rank() == root) *data = {std::ssize(text), text};
  Request size(data);
  broadcast_start(&data->length, 1, Datatype::kInt64, root, communicator.control(), size);
  wait(size, communicator, operation);
  data->text.resize(static_cast<std::size_t>(data->length));
  Request content(data);
  broadcast_start(data->text.data(), data->length, Datatype::kUInt8, root, communicator.control(), content);
  wait(content, communicator, operation);
  return data->text;
}

}  // namespace weft::mpi
