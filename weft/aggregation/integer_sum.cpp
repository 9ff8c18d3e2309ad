// int32 sums: what the switch adds is what the user has.
#include "weft/aggregation/elements.h"
#include "weft/aggregation/items.h"

namespace weft::aggregation {
namespace {

class IntegerSum final : public Operation {
 public:
  IntegerSum(const Layout& layout, std::span<const std::int32_t> in, std::span<std::int32_t> out)
      : items_(layout, in.size()), in_(in), out_(out), item_(static_cast<std::size_t>(items_.slots())) {
    for (std::size_t slot = 0; slot < item_.size(); ++slot) item_[slot] = slot;
  }

  int slots() const override { return items_.slots(); }
  Shape shape(int slot) const override { return items_.shape(items_.size(at(slot)), 0); }

  void fill(int slot, const Body& body) override {
    const auto mine = items_.part(in_, at(slot));
    write_elements(body.elements.first(4 * mine.size()), mine);
    // SwitchML's packets have one size
    std::fill(body.elements.begin() + static_cast<std::ptrdiff_t>(4 * mine.size()), body.elements.end(), std::byte{0});
    std::fill(body.exponents.begin(), body.exponents.end(), std::byte{0});
  }

  bool accept(int slot, const Packet& result) override {
    const auto mine = items_.part(out_, at(slot));
    set_elements(mine, result.elements);
    done_ += static_cast<std::int64_t>(mine.size());
    item_[static_cast<std::size_t>(slot)] += items_.window();
    return items_.exists(at(slot));
  }

  std::int64_t elements_done() const override { return done_; }
  std::uint32_t fingerprint() const override { return items_.fingerprint(0); }

 private:
  [[nodiscard]] std::size_t at(int slot) const { return item_[static_cast<std::size_t>(slot)]; }

  Items items_;
  std::span<const std::int32_t> in_;
  std::span<std::int32_t> out_;
  std::vector<std::size_t> item_;  // of each slot
  std::int64_t done_ = 0;
};

}  // namespace

std::unique_ptr<Operation> make_sum(const Layout& layout, std::span<const std::int32_t> in,
                                    std::span<std::int32_t> out) {
  return std::make_unique<IntegerSum>(layout, in, out);
}

}  // namespace weft::aggregation
