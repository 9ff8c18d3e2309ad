#include "weft/mpi/message/parcel.h"

#include <cstring>
#include <stdexcept>
#include <vector>

#include "weft/mpi/chunks.h"
#include "weft/mpi/control_tags.h"
#include "weft/mpi/environment.h"
#include "weft/mpi/error.h"

namespace weft::mpi {
namespace {

constexpr std::uint32_t kMagic = 0x77656674;  // "weft"
// Label and inline payload together stay below the eager limit of common MPI libraries.
constexpr std::size_t kBoxBytes = 4000;
constexpr std::size_t kInlineBytes = kBoxBytes - sizeof(Label);

std::string waiting_for(const void* wanted) {
  const auto& source = *static_cast<const std::optional<int>*>(wanted);
  return source ? ", no message from rank " + std::to_string(*source) : ", no message from any rank";
}

// Whether a receive with any tag has matched the farewell of a rank that closed the communicator (closing.h).
bool is_farewell(const MPI_Status& status) {
  int bytes = 0;
  check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
  return status.MPI_TAG == kFarewellTag && bytes == 0;
}

}  // namespace

struct IncomingParcel::Box {
  Label label;
  std::array<std::byte, kInlineBytes> data;
};

std::string Label::describe() const {
  std::string text(name_of(type));
  text += "[";
  for (std::size_t i = 0; i < sizes().size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

Label label_for(Datatype type, std::span<const std::int64_t> shape) {
  if (shape.size() > kMaxParcelDims) {
    throw std::invalid_argument("weft: at most " + std::to_string(kMaxParcelDims) +
                                " dimensions can be sent, got a tensor with " + std::to_string(shape.size()));
  }
  Label label;
  label.magic = kMagic;
  label.type = type;
  label.dims = static_cast<std::int8_t>(shape.size());
  label.bytes = size_of(type);
  for (std::size_t i = 0; i < shape.size(); ++i) {
    label.shape[i] = shape[i];
    label.bytes *= shape[i];
  }
  return label;
}

Request send_parcel(Communicator& communicator, CommView channel, int dest, int tag, Label label, const void* data,
                    std::shared_ptr<void> keep) {
  label.inlined = static_cast<std::size_t>(label.bytes) <= kInlineBytes;
  const std::size_t box_bytes = sizeof(Label) + (label.inlined ? static_cast<std::size_t>(label.bytes) : 0);
  struct Holding {
    std::shared_ptr<void> keep;
    std::array<std::byte, kBoxBytes> box;
  };
  auto holding = std::make_shared<Holding>();
  if (!label.inlined) {
    holding->keep = std::move(keep);
    label.payload = communicator.next_transfer();
  }
  std::memcpy(holding->box.data(), &label, sizeof label);
  if (label.inlined && label.bytes > 0) {
    std::memcpy(holding->box.data() + sizeof label, data, static_cast<std::size_t>(label.bytes));
  }
  Request request(holding);
  communicator.add_contact(dest);
  check(
      MPI_Isend(holding->box.data(), static_cast<int>(box_bytes), MPI_BYTE, dest, tag, channel.handle(), request.add()),
      "MPI_Isend", channel.handle());
  if (label.inlined) return request;
  const MPI_Comm control = communicator.control().handle();
  for_each_chunk(label.bytes, [&](std::int64_t first, int n) {
    check(MPI_Isend(at(data, first, 1), n, MPI_BYTE, dest, communicator.transfer_tag(label.payload), control,
                    request.add()),
          "MPI_Isend", control);
  });
  return request;
}

IncomingParcel::IncomingParcel(Communicator& communicator, CommView channel, std::optional<int> source,
                               std::optional<int> tag)
    : communicator_(communicator),
      channel_(channel),
      control_(communicator.control()),
      box_(std::make_unique<Box>()),
      wanted_source_(source),
      wanted_tag_(tag) {
  post();
  enlist();
}

void IncomingParcel::post() {
  check(MPI_Irecv(box_.get(), sizeof(Box), MPI_BYTE, wanted_source_.value_or(MPI_ANY_SOURCE),
                  wanted_tag_.value_or(MPI_ANY_TAG), channel_.handle(), &request_),
        "MPI_Irecv", channel_.handle());
}

IncomingParcel::~IncomingParcel() {
  delist();
  drop_receive();
}

void IncomingParcel::drop_receive() noexcept {
  if (request_ == MPI_REQUEST_NULL || !Environment::alive()) return;
  MPI_Cancel(&request_);
  MPI_Wait(&request_, MPI_STATUS_IGNORE);
}

bool IncomingParcel::test_label() {
  if (request_ == MPI_REQUEST_NULL) return true;
  int flag = 0;
  MPI_Status status;
  check(MPI_Test(&request_, &flag, &status), "MPI_Test");
  if (flag == 0) return false;
  if (is_farewell(status)) {
    Request confirmation;
    check(
        MPI_Isend(nullptr, 0, MPI_BYTE, status.MPI_SOURCE, kFarewellReceivedTag, control_.handle(), confirmation.add()),
        "MPI_Isend", control_.handle());
    post();
    return false;
  }
  source_ = status.MPI_SOURCE;
  tag_ = status.MPI_TAG;
  if (box_->label.magic != kMagic)
    throw MpiError(
        "weft.MpiError: received a message that weft did not send; do not send other messages on weft's communicators");
  return true;
}

bool IncomingParcel::arrived() {
  const auto guard = lock();
  return test_label();
}

void IncomingParcel::progress() {
  if (taken_ || early_ || communicator_.closed() || !test_label() || box_->label.inlined) return;
  early_ = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(box_->label.bytes));
  early_request_ = Request(early_);
  fetch(early_->data(), early_request_);
}

const Label& IncomingParcel::wait_label() {
  if (!arrived()) {
    Waiter waiter(
        {.operation = "recv", .communicator = &communicator_, .explain = waiting_for, .subject = &wanted_source_});
    while (!arrived()) waiter.idle();
  }
  return box_->label;
}

void IncomingParcel::fetch(void* data, Request& request) {
  communicator_.require_open();  // a closed communicator drops the payload
  const MPI_Comm control = control_.handle();
  for_each_chunk(box_->label.bytes, [&](std::int64_t first, int n) {
    check(MPI_Irecv(at(data, first, 1), n, MPI_BYTE, source_, communicator_.transfer_tag(box_->label.payload), control,
                    request.add()),
          "MPI_Irecv", control);
  });
}

void IncomingParcel::receive_into(void* data, std::shared_ptr<void> keep) {
  const Label& label = box_->label;
  const WaitContext context{
      .operation = "recv", .communicator = &communicator_, .explain = waiting_for, .subject = &wanted_source_};
  Request request(std::move(keep));
  {
    const auto guard = lock();  // not held while waiting, which advances other parcels and takes the lock
    taken_ = true;
    if (!label.inlined && !early_) fetch(data, request);
  }
  if (early_) early_request_.wait(context);
  if (label.inlined || early_) {
    const std::byte* from = early_ ? early_->data() : box_->data.data();
    if (label.bytes > 0) std::memcpy(data, from, static_cast<std::size_t>(label.bytes));
    return;
  }
  request.wait(context);
}

void IncomingParcel::discard() {
  if (box_->label.inlined) return;
  const auto scrap = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(box_->label.bytes));
  receive_into(scrap->data(), scrap);
}

}  // namespace weft::mpi
