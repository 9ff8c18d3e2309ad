// A message that says what it carries: element type, shape, and how its gradient is to be answered.
//
// Small parcels travel in one message behind their label. Larger ones follow as a second message on the control
// channel under a number of their own, so that any receive, also one from any source or with any tag, finds exactly
// the payload that belongs to the label it matched.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/mpi/datatype.h"
#include "weft/mpi/request.h"
#include "weft/mpi/team.h"

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
  std::int64_t gradient_tag = 0;  // tag on the backward channel under which the gradient is answered
  std::array<std::int64_t, kMaxParcelDims> shape{};

  [[nodiscard]] std::span<const std::int64_t> sizes() const noexcept {
    return {shape.data(), static_cast<std::size_t>(dims)};
  }
  // "float32[2, 3]".
  [[nodiscard]] std::string describe() const;
};

// Fills type, dims, shape and bytes. Throws std::invalid_argument above kMaxParcelDims dimensions.
[[nodiscard]] Label label_for(Datatype type, std::span<const std::int64_t> shape);

// Starts sending. `keep` owns `data` until the Request is done. `label` is completed (payload number) on the way.
[[nodiscard]] Request send_parcel(Team& team, Direction direction, int dest, int tag, Label label, const void* data,
                                  std::shared_ptr<void> keep);

// The receiving end: waits for a label, then for its payload into memory that the caller provides. If the label comes
// while this rank waits for something else, the payload is fetched then, into a buffer of the parcel's own: its sender
// may be what the rank waits for.
class IncomingParcel : private IdleTask {
 public:
  // An absent source or tag means any.
  IncomingParcel(Team& team, Direction direction, std::optional<int> source, std::optional<int> tag);
  ~IncomingParcel();
  IncomingParcel(const IncomingParcel&) = delete;
  IncomingParcel& operator=(const IncomingParcel&) = delete;

  // True once the label is here; makes MPI progress.
  [[nodiscard]] bool arrived();
  // Blocks until the label is here. On TimeoutError the receive is cancelled and the team stays usable.
  const Label& wait_label();
  [[nodiscard]] int source() const noexcept { return source_; }
  [[nodiscard]] int tag() const noexcept { return tag_; }
  // Blocks until the payload lies in `data` (label.bytes long), which `keep` owns. Once, after wait_label().
  void receive_into(void* data, std::shared_ptr<void> keep);
  // Takes the payload and throws it away: for a parcel that does not fit what the caller expects.
  void discard();

 private:
  struct Box;  // label and inline payload as they arrive
  void progress() override;
  [[nodiscard]] bool test_label();
  void fetch(void* data, Request& request);
  void drop_receive() noexcept;

  Team& team_;
  std::unique_ptr<Box> box_;
  MPI_Request request_ = MPI_REQUEST_NULL;
  std::optional<int> wanted_source_;
  std::shared_ptr<std::vector<std::byte>> early_;  // the payload, where it was fetched ahead of receive_into()
  Request early_request_;
  bool taken_ = false;
  int source_ = -1;
  int tag_ = -1;
};

}  // namespace weft::mpi
