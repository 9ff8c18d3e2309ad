// Sums of float32, float16 and bfloat16. The exponents of a chunk travel with the last round of the previous chunk.
#include "weft/aggregation/worker/chunks.h"
#include "weft/aggregation/worker/float_chunk.h"

namespace weft::aggregation {
namespace {

[[nodiscard]] float to_float(float x) { return x; }
[[nodiscard]] float to_float(numeric::Float16 x) { return x.to_float(); }
[[nodiscard]] float to_float(numeric::BFloat16 x) { return x.to_float(); }

template <class Number>
constexpr std::uint32_t kType = 1;
template <>
constexpr std::uint32_t kType<numeric::Float16> = 2;
template <>
constexpr std::uint32_t kType<numeric::BFloat16> = 3;

template <class Number>
class FloatSum final : public SumStream {
 public:
  FloatSum(const SumLayout& layout, std::span<const Number> in, std::span<Number> out)
      : chunks_(layout, in.size()),
        block_elements_(layout.mode == Mode::kSwitchMl ? static_cast<std::size_t>(layout.packet_elements)
                                                       : kBlockElements),
        in_(in),
        out_(out) {
    for (int slot = 0; slot < chunks_.slots(); ++slot) {
      streams_.push_back({static_cast<std::size_t>(slot), -1, FloatChunk(layout.workers, block_elements_)});
    }
  }

  int slots() const override { return chunks_.slots(); }

  Shape shape(int slot) const override {
    const Stream& stream = at(slot);
    const std::size_t elements = stream.round < 0 ? 0 : chunks_.size(stream.chunk);
    return chunks_.shape(elements, blocks(announced(stream)));
  }

  void fill(int slot, const Body& body) override {
    Stream& stream = at(slot);
    std::size_t used = 0;
    if (stream.round >= 0) {
      const std::span<const float> mine = floats(stream.chunk);
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
    if (next == kNone) {  // the same chunk has another round
      ++stream.round;
      ++extra_rounds_;
      return true;
    }
    if (!chunks_.exists(next)) return false;
    stream.scales.begin(result.exponents, blocks(next));
    stream.chunk = next;
    stream.round = 0;
    return true;
  }

  std::int64_t elements_done() const override { return done_; }
  std::uint32_t fingerprint() const override { return chunks_.fingerprint(kType<Number>); }
  std::int64_t extra_rounds() const override { return extra_rounds_; }

 private:
  struct Stream {
    std::size_t chunk;
    int round;  // round of that chunk; -1: only its exponents are sent
    FloatChunk scales;
  };
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  [[nodiscard]] Stream& at(int slot) { return streams_[static_cast<std::size_t>(slot)]; }
  [[nodiscard]] const Stream& at(int slot) const { return streams_[static_cast<std::size_t>(slot)]; }

  // The chunk whose exponents travel in this turn: in the last round of a chunk, the next chunk, which may not exist.
  [[nodiscard]] std::size_t announced(const Stream& stream) const {
    if (stream.round < 0) return stream.chunk;
    return stream.round + 1 == stream.scales.rounds() ? stream.chunk + chunks_.window() : kNone;
  }
  [[nodiscard]] std::size_t blocks(std::size_t chunk) const {
    return (chunks_.size(chunk) + block_elements_ - 1) / block_elements_;
  }

  // The inputs of the chunk as float32: a view, or for other types a copy that is valid until the next call.
  [[nodiscard]] std::span<const float> floats(std::size_t chunk) {
    if (!chunks_.exists(chunk)) return {};
    const std::span<const Number> mine = chunks_.part(in_, chunk);
    if constexpr (std::is_same_v<Number, float>) return mine;
    copy_.resize(mine.size());
    std::ranges::transform(mine, copy_.begin(), [](Number x) { return to_float(x); });
    return copy_;
  }

  void accept_round(Stream& stream, const Packet& result) {
    const std::span<Number> mine = chunks_.part(out_, stream.chunk);
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

  Chunks chunks_;
  std::size_t block_elements_;
  std::span<const Number> in_;
  std::span<Number> out_;
  std::vector<Stream> streams_;
  std::vector<float> copy_;
  FloatChunk::Scratch integers_;
  std::int64_t done_ = 0;
  std::int64_t extra_rounds_ = 0;
};

}  // namespace

std::unique_ptr<SumStream> make_sum(const SumLayout& layout, std::span<const float> in, std::span<float> out) {
  return std::make_unique<FloatSum<float>>(layout, in, out);
}
std::unique_ptr<SumStream> make_sum(const SumLayout& layout, std::span<const numeric::Float16> in,
                                    std::span<numeric::Float16> out) {
  return std::make_unique<FloatSum<numeric::Float16>>(layout, in, out);
}
std::unique_ptr<SumStream> make_sum(const SumLayout& layout, std::span<const numeric::BFloat16> in,
                                    std::span<numeric::BFloat16> out) {
  return std::make_unique<FloatSum<numeric::BFloat16>>(layout, in, out);
}

}  // namespace weft::aggregation
