// Sums of int32, which the switch adds without conversion.
#include "weft/aggregation/packet/elements.h"
#include "weft/aggregation/worker/chunks.h"

namespace weft::aggregation {
namespace {

class IntegerSum final : public SumStream {
 public:
  IntegerSum(const SumLayout& layout, std::span<const std::int32_t> in, std::span<std::int32_t> out)
      : chunks_(layout, in.size(), static_cast<std::size_t>(layout.packet_elements)),
        in_(in),
        out_(out),
        chunk_of_slot_(static_cast<std::size_t>(chunks_.slots())) {
    for (std::size_t slot = 0; slot < chunk_of_slot_.size(); ++slot) chunk_of_slot_[slot] = slot;
  }

  int slots() const override { return chunks_.slots(); }
  Shape shape(int slot) const override { return chunks_.shape(chunks_.size(at(slot)), 0); }

  void fill(int slot, const Body& body) override {
    const auto mine = chunks_.part(in_, at(slot));
    write_elements(body.elements.first(4 * mine.size()), mine);
    // SwitchML's packets have a fixed size.
    std::fill(body.elements.begin() + static_cast<std::ptrdiff_t>(4 * mine.size()), body.elements.end(), std::byte{0});
    std::fill(body.exponents.begin(), body.exponents.end(), std::byte{0});
  }

  bool accept(int slot, const Packet& result) override {
    const auto mine = chunks_.part(out_, at(slot));
    set_elements(mine, result.elements);
    done_ += static_cast<std::int64_t>(mine.size());
    chunk_of_slot_[static_cast<std::size_t>(slot)] += chunks_.window();
    return chunks_.exists(at(slot));
  }

  std::int64_t elements_done() const override { return done_; }
  std::uint32_t fingerprint() const override { return chunks_.fingerprint(0); }

 private:
  [[nodiscard]] std::size_t at(int slot) const { return chunk_of_slot_[static_cast<std::size_t>(slot)]; }

  Chunks chunks_;
  std::span<const std::int32_t> in_;
  std::span<std::int32_t> out_;
  std::vector<std::size_t> chunk_of_slot_;  // current chunk of each slot
  std::int64_t done_ = 0;
};

}  // namespace

std::unique_ptr<SumStream> make_sum(const SumLayout& layout, std::span<const std::int32_t> in,
                                    std::span<std::int32_t> out) {
  return std::make_unique<IntegerSum>(layout, in, out);
}

}  // namespace weft::aggregation
