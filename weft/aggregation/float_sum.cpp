// Sums of float32, float16 and bfloat16: the exponents of an item travel with the last round of the one before.
#include "weft/aggregation/float_item.h"
#include "weft/aggregation/items.h"

namespace weft::aggregation {
namespace {

[[nodiscard]] float to_float(float x) { return x; }
[[nodiscard]] float to_float(mpi::Float16 x) { return x.to_float(); }
[[nodiscard]] float to_float(mpi::BFloat16 x) { return x.to_float(); }

template <class Number>
constexpr std::uint32_t kType = 1;
template <>
constexpr std::uint32_t kType<mpi::Float16> = 2;
template <>
constexpr std::uint32_t kType<mpi::BFloat16> = 3;

template <class Number>
class FloatSum final : public Operation {
 public:
  FloatSum(const Layout& layout, std::span<const Number> in, std::span<Number> out)
      : items_(layout, in.size()),
        block_elements_(layout.mode == Mode::kSwitchMl ? static_cast<std::size_t>(layout.packet_elements)
                                                       : kBlockElements),
        in_(in),
        out_(out) {
    for (int slot = 0; slot < items_.slots(); ++slot) {
      streams_.push_back({static_cast<std::size_t>(slot), -1, FloatItem(layout.workers, block_elements_)});
    }
  }

  int slots() const override { return items_.slots(); }

  Shape shape(int slot) const override {
    const Stream& stream = at(slot);
    const std::size_t elements = stream.round < 0 ? 0 : items_.size(stream.item);
    return items_.shape(elements, blocks(announced(stream)));
  }

  void fill(int slot, const Body& body) override {
    Stream& stream = at(slot);
    std::size_t used = 0;
    if (stream.round >= 0) {
      const std::span<const float> mine = floats(stream.item);
      used = 4 * mine.size();
      stream.scales.quantise(mine, stream.round, body.elements.first(used), integers_);
    }
    std::fill(body.elements.begin() + static_cast<std::ptrdiff_t>(used), body.elements.end(), std::byte{0});
    std::fill(body.exponents.begin(), body.exponents.end(), std::byte{0});
    write_ranges(floats(announced(stream)), block_elements_, body.exponents);
  }

  bool accept(int slot, const Packet& result) override {
    Stream& stream = at(slot);
    const std::size_t next = announced(stream);
    if (stream.round >= 0) accept_round(stream, result);
    if (next == kNone) {  // another round of the same item
      ++stream.round;
      ++extra_rounds_;
      return true;
    }
    if (!items_.exists(next)) return false;
    stream.scales.begin(result.exponents, blocks(next));
    stream.item = next;
    stream.round = 0;
    return true;
  }

  std::int64_t elements_done() const override { return done_; }
  std::uint32_t fingerprint() const override { return items_.fingerprint(kType<Number>); }
  std::int64_t extra_rounds() const override { return extra_rounds_; }

 private:
  struct Stream {
    std::size_t item;
    int round;  // of that item; -1: only its exponents go out
    FloatItem scales;
  };
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  [[nodiscard]] Stream& at(int slot) { return streams_[static_cast<std::size_t>(slot)]; }
  [[nodiscard]] const Stream& at(int slot) const { return streams_[static_cast<std::size_t>(slot)]; }

  // Whose exponents travel in this turn: in the last round of an item the next one's, which may not exist.
  [[nodiscard]] std::size_t announced(const Stream& stream) const {
    if (stream.round < 0) return stream.item;
    return stream.round + 1 == stream.scales.rounds() ? stream.item + items_.window() : kNone;
  }
  [[nodiscard]] std::size_t blocks(std::size_t item) const {
    return (items_.size(item) + block_elements_ - 1) / block_elements_;
  }

  // The item's inputs; of types that are not float a copy, until the next call.
  [[nodiscard]] std::span<const float> floats(std::size_t item) {
    if (!items_.exists(item)) return {};
    const std::span<const Number> mine = items_.part(in_, item);
    if constexpr (std::is_same_v<Number, float>) return mine;
    copy_.resize(mine.size());
    std::ranges::transform(mine, copy_.begin(), [](Number x) { return to_float(x); });
    return copy_;
  }

  void accept_round(Stream& stream, const Packet& result) {
    const std::span<Number> mine = items_.part(out_, stream.item);
    const bool last = stream.round + 1 == stream.scales.rounds();
    const auto elements = result.elements.first(4 * mine.size());
    if constexpr (std::is_same_v<Number, float>) {
      stream.scales.accept(elements, stream.round, mine, integers_);
    } else {
      copy_.resize(mine.size());
      stream.scales.accept(elements, stream.round, copy_, integers_);
      if (last) std::ranges::transform(copy_, mine.begin(), [](float x) { return Number::from_float(x); });
    }
    if (last) done_ += static_cast<std::int64_t>(mine.size());
  }

  Items items_;
  std::size_t block_elements_;
  std::span<const Number> in_;
  std::span<Number> out_;
  std::vector<Stream> streams_;
  std::vector<float> copy_;
  FloatItem::Scratch integers_;
  std::int64_t done_ = 0;
  std::int64_t extra_rounds_ = 0;
};

}  // namespace

std::unique_ptr<Operation> make_sum(const Layout& layout, std::span<const float> in, std::span<float> out) {
  return std::make_unique<FloatSum<float>>(layout, in, out);
}
std::unique_ptr<Operation> make_sum(const Layout& layout, std::span<const mpi::Float16> in,
                                    std::span<mpi::Float16> out) {
  return std::make_unique<FloatSum<mpi::Float16>>(layout, in, out);
}
std::unique_ptr<Operation> make_sum(const Layout& layout, std::span<const mpi::BFloat16> in,
                                    std::span<mpi::BFloat16> out) {
  return std::make_unique<FloatSum<mpi::BFloat16>>(layout, in, out);
}

}  // namespace weft::aggregation
