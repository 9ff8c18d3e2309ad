#include "weft/multigrid/mpi_transport.h"

#include <array>
#include <cmath>
#include <limits>
#include <new>
#include <stdexcept>
#include <utility>

#include "weft/mpi/agreement.h"
#include "weft/mpi/chunks.h"
#include "weft/mpi/collectives.h"
#include "weft/mpi/error.h"
#include "weft/mpi/message/text_collectives.h"

namespace weft::multigrid {
namespace {

constexpr std::int64_t kFailureNotice = -1;

// A level uses two tags. The first carries the state if its size is known. Otherwise it carries the size, and the next
// tag carries the state.
int first_tag(int level) { return 2 * level; }

// Whether a message of this size needs no header. A failure notice is then a message of a different size.
bool needs_no_header(std::optional<std::int64_t> bytes) { return bytes && *bytes <= mpi::options().max_count; }

// Memory with the alignment of operator new, so that it can hold any type.
std::shared_ptr<void> allocate(std::int64_t bytes) {
  return {::operator new(static_cast<std::size_t>(bytes)), [](void* memory) { ::operator delete(memory); }};
}

std::string waiting_for(const void* source) {
  return ", no state from rank " + std::to_string(*static_cast<const int*>(source));
}

class MpiIncomingState final : public IncomingState {
 public:
  MpiIncomingState(Communicator& communicator, int source, int level, std::optional<std::int64_t> bytes)
      : communicator_(communicator), source_(source), tag_(first_tag(level)) {
    if (needs_no_header(bytes)) {
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
    const MPI_Comm comm = communicator_.channel(mpi::Direction::kForward).handle();
    mpi::for_each_chunk(bytes, [&](std::int64_t first, int n) {
      mpi::check(MPI_Irecv(mpi::at(memory_.get(), first, 1), n, MPI_BYTE, source_, tag, comm, request_.add()),
                 "MPI_Irecv", comm);
    });
  }
  void wait_here() {
    request_.wait(
        {.operation = "multigrid", .communicator = &communicator_, .explain = waiting_for, .subject = &source_});
  }
  [[nodiscard]] Packed received(std::int64_t bytes) const {
    return {{static_cast<const std::byte*>(memory_.get()), static_cast<std::size_t>(bytes)}, memory_};
  }

  Communicator& communicator_;
  int source_;
  int tag_;
  std::int64_t bytes_ = -1;  // -1: unknown
  std::shared_ptr<void> memory_;
  mpi::Request request_;
};

class KnownReduction final : public PendingReduction {
 public:
  explicit KnownReduction(ReductionResult result) : result_(result) {}
  ReductionResult wait() override { return result_; }

 private:
  ReductionResult result_;
};

// Sends NaN as a flag: MPI does not specify the maximum of NaN and a number.
class MpiReduction final : public PendingReduction {
 public:
  MpiReduction(Communicator& communicator, double value, bool maximum, bool failed)
      : communicator_(communicator), numbers_(std::make_shared<Numbers>()), request_(numbers_) {
    const bool nan = std::isnan(value);
    numbers_->mine = {nan ? 0 : value, nan ? 1.0 : 0.0, failed ? 1.0 : 0.0};
    mpi::all_reduce_start(numbers_->mine.data(), numbers_->all.data(), 3, mpi::Datatype::kFloat64,
                          maximum ? mpi::ReduceOp::kMax : mpi::ReduceOp::kSum,
                          communicator.channel(mpi::Direction::kForward), request_);
  }
  ReductionResult wait() override {
    request_.wait({.operation = "multigrid", .communicator = &communicator_});
    const auto& [value, nan, failed] = numbers_->all;
    return {nan > 0 ? std::numeric_limits<double>::quiet_NaN() : value, failed > 0};
  }

 private:
  struct Numbers {
    std::array<double, 3> mine{};
    std::array<double, 3> all{};
  };
  Communicator& communicator_;
  std::shared_ptr<Numbers> numbers_;
  mpi::Request request_;
};

}  // namespace

MpiTransport::MpiTransport(std::shared_ptr<Communicator> communicator) : communicator_(std::move(communicator)) {
  if (communicator_ == nullptr)
    throw std::invalid_argument("multigrid: MpiTransport: the communicator must not be null");
}

void MpiTransport::begin(std::uint64_t signature, bool failed, const std::string& description) {
  mpi::require_agreement(*communicator_, {.signature = signature, .failed = failed}, description);
}

std::unique_ptr<IncomingState> MpiTransport::receive(int source, int level, std::optional<std::int64_t> bytes) {
  return std::make_unique<MpiIncomingState>(*communicator_, source, level, bytes);
}

void MpiTransport::send_bytes(int dest, int tag, std::span<const std::byte> bytes, std::shared_ptr<const void> owner) {
  mpi::Request& request = sends_.emplace_back(std::const_pointer_cast<void>(std::move(owner)));
  const MPI_Comm comm = communicator_->channel(mpi::Direction::kForward).handle();
  mpi::for_each_chunk(static_cast<std::int64_t>(bytes.size()), [&](std::int64_t first, int n) {
    mpi::check(MPI_Isend(mpi::at(bytes.data(), first, 1), n, MPI_BYTE, dest, tag, comm, request.add()), "MPI_Isend",
               comm);
  });
}

void MpiTransport::send(int dest, int level, std::optional<Packed> message, std::optional<std::int64_t> bytes) {
  static constexpr std::byte kAnyByte{};
  const int tag = first_tag(level);
  if (needs_no_header(bytes)) {
    if (message) return send_bytes(dest, tag, message->bytes, message->owner);
    return send_bytes(dest, tag, {&kAnyByte, *bytes == 0 ? std::size_t{1} : std::size_t{0}}, nullptr);
  }
  const auto header =
      std::make_shared<const std::int64_t>(message ? static_cast<std::int64_t>(message->bytes.size()) : kFailureNotice);
  send_bytes(dest, tag, std::as_bytes(std::span(header.get(), 1)), header);
  if (message && !message->bytes.empty()) send_bytes(dest, tag + 1, message->bytes, message->owner);
}

void MpiTransport::progress() {
  if (size() == 1) return;
  std::erase_if(sends_, [](mpi::Request& request) { return request.test(); });
  communicator_->poll_alarm();  // also makes progress on pending receives
}

void MpiTransport::finish() {
  for (mpi::Request& request : sends_) request.wait({.operation = "multigrid", .communicator = communicator_.get()});
  sends_.clear();
}

std::unique_ptr<PendingReduction> MpiTransport::reduce(double value, bool maximum, bool failed) {
  if (size() == 1) return std::make_unique<KnownReduction>(ReductionResult{value, failed});
  return std::make_unique<MpiReduction>(*communicator_, value, maximum, failed);
}

bool MpiTransport::end(bool failed) {
  return communicator_->agree(mpi::Direction::kForward, {.failed = failed}).any_failed;
}

std::vector<std::string> MpiTransport::gather(const std::string& text) {
  return mpi::all_gather_text(*communicator_, text, "multigrid");
}

void MpiTransport::abandon(const std::string& cause) noexcept {
  sends_.clear();
  communicator_->raise_alarm(cause);
}

}  // namespace weft::multigrid
