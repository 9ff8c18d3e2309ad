// Parcels: self-describing messages with element type, shape and the tag under which to return the gradient.
//
// A small payload is sent in the same message as its label. A larger payload is sent as a second message on the control
// channel under a unique transfer number. Therefore every receive, even one from any source or with any tag, finds
// the payload that belongs to its label.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/mpi/communicator.h"
#include "weft/mpi/datatype.h"
#include "weft/mpi/request.h"

namespace weft::mpi {

inline constexpr std::size_t kMaxParcelDims = 16;

struct Label {
  std::uint32_t magic = 0;
  Datatype type = Datatype::kUInt8;
  std::int8_t dims = 0;
  bool wants_grad = false;  // the sender expects the gradient back
  bool inlined = false;
  std::int64_t bytes = 0;
  std::int64_t payload = 0;       // transfer number of the second message
  std::int64_t gradient_tag = 0;  // tag on the backward channel under which the receiver returns the gradient
  std::array<std::int64_t, kMaxParcelDims> shape{};

  [[nodiscard]] std::span<const std::int64_t> sizes() const noexcept {
    return {shape.data(), static_cast<std::size_t>(dims)};
  }
  // Returns text such as "float32[2, 3]".
  [[nodiscard]] std::string describe() const;
};

// A label with type, dims, shape and bytes. Throws std::invalid_argument above kMaxParcelDims dimensions.
[[nodiscard]] Label label_for(Datatype type, std::span<const std::int64_t> shape);

// Starts sending on `channel`, a channel of the communicator other than control; fills in the label's payload number.
// `keep` owns `data` until the Request is done.
[[nodiscard]] Request send_parcel(Communicator& communicator, CommView channel, int dest, int tag, Label label,
                                  const void* data, std::shared_ptr<void> keep);

// Receives a parcel: first its label, then its payload into memory of the caller. If the label arrives while this rank
// waits for something else, the payload is received early into an internal buffer, because this rank may wait for the
// sender of the parcel.
class IncomingParcel : private IdleTask {
 public:
  // Without a source or tag, any matches.
  IncomingParcel(Communicator& communicator, CommView channel, std::optional<int> source, std::optional<int> tag);
  ~IncomingParcel();
  IncomingParcel(const IncomingParcel&) = delete;
  IncomingParcel& operator=(const IncomingParcel&) = delete;

  // Returns true once the label has arrived; makes MPI progress.
  [[nodiscard]] bool arrived();
  // Blocks until the label arrives. TimeoutError cancels the receive; the communicator stays usable.
  const Label& wait_label();
  [[nodiscard]] int source() const noexcept { return source_; }
  [[nodiscard]] int tag() const noexcept { return tag_; }
  // Blocks until the payload is in `data` (label.bytes long), which `keep` owns. Call it once, after wait_label().
  void receive_into(void* data, std::shared_ptr<void> keep);
  // Receives and drops the payload, for a parcel that does not match the caller's expectation.
  void discard();

 private:
  struct Box;  // receive buffer for the label and an inline payload
  void progress() override;
  void post();
  [[nodiscard]] bool test_label();
  void fetch(void* data, Request& request);
  void drop_receive() noexcept;

  Communicator& communicator_;
  CommView channel_, control_;  // of the same generation: a failure replaces both
  std::unique_ptr<Box> box_;
  MPI_Request request_ = MPI_REQUEST_NULL;
  std::optional<int> wanted_source_, wanted_tag_;
  std::shared_ptr<std::vector<std::byte>> early_;  // the payload, if it arrived before receive_into()
  Request early_request_;
  bool taken_ = false;
  int source_ = -1;
  int tag_ = -1;
};

}  // namespace weft::mpi
