#include "weft/multigrid/mpi_transport.h"

#include <array>
#include <cmath>
#include <limits>
#include <new>
#include <stdexcept>
#include <utility>

#include "weft/mpi/chunks.h"
#include "weft/mpi/collectives.h"
#include "weft/mpi/error.h"

namespace weft::multigrid {
namespace {

constexpr std::int64_t kFailureNotice = -1;

// Of a level: the state itself where its size is known, else its size, and then the state under the next tag.
int first_tag(int level) { return 2 * level; }

// Whether a message of this size can do without a header: a failure notice is then a message of another size.
bool travels_alone(std::optional<std::int64_t> bytes) { return bytes && *bytes <= mpi::options().max_count; }

// As aligned as new makes it, whatever the bytes turn out to be.
std::shared_ptr<void> allocate(std::int64_t bytes) {
  return {::operator new(static_cast<std::size_t>(bytes)), [](void* memory) { ::operator delete(memory); }};
}

std::string waiting_for(const void* source) {
  return ", no state came from rank " + std::to_string(*static_cast<const int*>(source));
}

class MpiIncoming final : public Incoming {
 public:
  MpiIncoming(mpi::Team& team, int source, int level, std::optional<std::int64_t> bytes)
      : team_(team), source_(source), tag_(first_tag(level)) {
    if (travels_alone(bytes)) {
      bytes_ = *bytes;
      post(tag_, std::max<std::int64_t>(bytes_, 1));
    } else {
      post(tag_, sizeof(std::int64_t));
    }
  }

  std::optional<Packed> wait() override {
    wait_here();
    if (bytes_ >= 0) {
      int count = 0;
      mpi::check(MPI_Get_count(&request_.status(), MPI_BYTE, &count), "MPI_Get_count");
      return count == bytes_ ? std::optional(received(bytes_)) : std::nullopt;
    }
    const std::int64_t bytes = *static_cast<const std::int64_t*>(memory_.get());
    if (bytes == kFailureNotice) return std::nullopt;
    if (bytes > 0) {
      post(tag_ + 1, bytes);
      wait_here();
    }
    return received(bytes);
  }

 private:
  void post(int tag, std::int64_t bytes) {
    memory_ = allocate(bytes);
    request_ = mpi::Request(memory_);
    const MPI_Comm comm = team_.channel(mpi::Direction::kForward).handle();
    mpi::for_each_chunk(bytes, [&](std::int64_t first, int n) {
      mpi::check(MPI_Irecv(mpi::at(memory_.get(), first, 1), n, MPI_BYTE, source_, tag, comm, request_.add()),
                 "MPI_Irecv", comm);
    });
  }
  void wait_here() {
    request_.wait({.operation = "multigrid", .team = &team_, .explain = waiting_for, .subject = &source_});
  }
  [[nodiscard]] Packed received(std::int64_t bytes) const {
    return {{static_cast<const std::byte*>(memory_.get()), static_cast<std::size_t>(bytes)}, memory_};
  }

  mpi::Team& team_;
  int source_;
  int tag_;
  std::int64_t bytes_ = -1;  // unknown
  std::shared_ptr<void> memory_;
  mpi::Request request_;
};

class Known final : public PendingAgreement {
 public:
  explicit Known(Agreement agreement) : agreement_(agreement) {}
  Agreement wait() override { return agreement_; }

 private:
  Agreement agreement_;
};

// NaN travels as a flag: MPI does not say what becomes of it in a maximum.
class MpiAgreement final : public PendingAgreement {
 public:
  MpiAgreement(mpi::Team& team, double value, bool maximum, bool failed)
      : team_(team), numbers_(std::make_shared<Numbers>()), request_(numbers_) {
    const bool nan = std::isnan(value);
    numbers_->mine = {nan ? 0 : value, nan ? 1.0 : 0.0, failed ? 1.0 : 0.0};
    mpi::all_reduce_start(numbers_->mine.data(), numbers_->all.data(), 3, mpi::Datatype::kFloat64,
                          maximum ? mpi::ReduceOp::kMax : mpi::ReduceOp::kSum, team.channel(mpi::Direction::kForward),
                          request_);
  }
  Agreement wait() override {
    request_.wait({.operation = "multigrid", .team = &team_});
    const auto& [value, nan, failed] = numbers_->all;
    return {nan > 0 ? std::numeric_limits<double>::quiet_NaN() : value, failed > 0};
  }

 private:
  struct Numbers {
    std::array<double, 3> mine{};
    std::array<double, 3> all{};
  };
  mpi::Team& team_;
  std::shared_ptr<Numbers> numbers_;
  mpi::Request request_;
};

// Every rank's text, one behind the other.
struct Gathered {
  Gathered(std::string text, std::size_t ranks)
      : mine(std::move(text)), length(static_cast<std::int64_t>(mine.size())), ones(ranks, 1), lengths(ranks) {}

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

}  // namespace

MpiTransport::MpiTransport(std::shared_ptr<mpi::Team> team) : team_(std::move(team)) {
  if (team_ == nullptr) throw std::invalid_argument("multigrid: a transport needs a team, it was given none");
}

void MpiTransport::begin(std::uint64_t signature, bool failed, const std::string& description) {
  team_->enter();
  const mpi::Outcome outcome = team_->agree(mpi::Direction::kForward, {.signature = signature, .failed = failed});
  if (!outcome.same_call()) team_->disagree(description);
}

std::unique_ptr<Incoming> MpiTransport::receive(int source, int level, std::optional<std::int64_t> bytes) {
  return std::make_unique<MpiIncoming>(*team_, source, level, bytes);
}

void MpiTransport::send_bytes(int dest, int tag, std::span<const std::byte> bytes, std::shared_ptr<const void> owner) {
  mpi::Request& request = sends_.emplace_back(std::const_pointer_cast<void>(std::move(owner)));
  const MPI_Comm comm = team_->channel(mpi::Direction::kForward).handle();
  mpi::for_each_chunk(static_cast<std::int64_t>(bytes.size()), [&](std::int64_t first, int n) {
    mpi::check(MPI_Isend(mpi::at(bytes.data(), first, 1), n, MPI_BYTE, dest, tag, comm, request.add()), "MPI_Isend",
               comm);
  });
}

void MpiTransport::send(int dest, int level, std::optional<Packed> message, std::optional<std::int64_t> bytes) {
  static constexpr std::byte kAnything{};
  const int tag = first_tag(level);
  if (travels_alone(bytes)) {
    if (message) return send_bytes(dest, tag, message->bytes, message->owner);
    return send_bytes(dest, tag, {&kAnything, *bytes == 0 ? std::size_t{1} : std::size_t{0}}, nullptr);
  }
  const auto header =
      std::make_shared<const std::int64_t>(message ? static_cast<std::int64_t>(message->bytes.size()) : kFailureNotice);
  send_bytes(dest, tag, std::as_bytes(std::span(header.get(), 1)), header);
  if (message && !message->bytes.empty()) send_bytes(dest, tag + 1, message->bytes, message->owner);
}

void MpiTransport::progress() {
  if (size() == 1) return;
  std::erase_if(sends_, [](mpi::Request& request) { return request.test(); });
  team_->poll_alarm();  // which also makes MPI move what is to be received
}

void MpiTransport::finish() {
  for (mpi::Request& request : sends_) request.wait({.operation = "multigrid", .team = team_.get()});
  sends_.clear();
}

std::unique_ptr<PendingAgreement> MpiTransport::agree(double value, bool maximum, bool failed) {
  if (size() == 1) return std::make_unique<Known>(Agreement{value, failed});
  return std::make_unique<MpiAgreement>(*team_, value, maximum, failed);
}

bool MpiTransport::end(bool failed) { return team_->agree(mpi::Direction::kForward, {.failed = failed}).any_failed; }

std::vector<std::string> MpiTransport::gather(const std::string& text) {
  // Kept by the requests: MPI may use them even after a wait that was given up.
  const auto gathered = std::make_shared<Gathered>(text, static_cast<std::size_t>(size()));
  const mpi::CommunicatorView comm = team_->channel(mpi::Direction::kForward);
  const mpi::WaitContext context{.operation = "multigrid", .team = team_.get()};
  auto& [mine, length, ones, lengths, all] = *gathered;
  mpi::Request sizes(gathered);
  mpi::all_gather_start(&length, lengths.data(), ones, mpi::Datatype::kInt64, comm, sizes);
  sizes.wait(context);
  all.resize(static_cast<std::size_t>(mpi::total_of(lengths)));
  mpi::Request contents(gathered);
  mpi::all_gather_start(mine.data(), all.data(), lengths, mpi::Datatype::kUInt8, comm, contents);
  contents.wait(context);
  return gathered->split();
}

void MpiTransport::abandon(const std::string& cause) noexcept {
  sends_.clear();
  team_->raise_alarm(cause);
}

}  // namespace weft::multigrid
