// Sums of float32, float16 and bfloat16. The exponents of a chunk travel with the last packet of the slot's previous
// chunk.
#include "weft/aggregation/worker/chunks.h"
#include "weft/aggregation/worker/float_chunk.h"

namespace weft::aggregation {
namespace {

template <class Number>
constexpr std::uint32_t kType = 1;
template <>
constexpr std::uint32_t kType<numeric::Float16> = 2;
template <>
constexpr std::uint32_t kType<numeric::BFloat16> = 3;

// Large packets have room for further rounds of some blocks, so that they need no packets of their own.
std::size_t chunk_elements(const SumLayout& layout) {
  const auto most = static_cast<std::size_t>(layout.packet_elements);
  return layout.mode == Mode::kSwitchMl ? most : most - most / (8 * kBlockElements) * kBlockElements;
}

template <class Number>
class FloatSum final : public SumStream {
 public:
  FloatSum(const SumLayout& layout, std::span<const Number> in, std::span<Number> out)
      : chunks_(layout, in.size(), chunk_elements(layout)),
        block_elements_(layout.mode == Mode::kSwitchMl ? static_cast<std::size_t>(layout.packet_elements)
                                                       : kBlockElements),
        in_(in),
        out_(out),
        buffer_(block_elements_) {
    const FloatFormat format{block_elements_, static_cast<std::size_t>(layout.packet_elements) / block_elements_,
                             headroom_bits(layout.workers), layout.reduction == Reduction::kMean ? layout.workers : 1};
    for (int slot = 0; slot < chunks_.slots(); ++slot) {
      streams_.push_back({static_cast<std::size_t>(slot), -1, FloatChunk<Number>(format)});
    }
  }

  int slots() const override { return chunks_.slots(); }

  Shape shape(int slot) const override {
    const Stream& stream = at(slot);
    const std::size_t elements = stream.packet < 0 ? 0 : stream.scales.elements(stream.packet);
    const std::size_t next = announced(stream);
    // Packets that announce nothing have the same size as others, so that one system call can send both.
    return chunks_.shape(elements, blocks(next == kNone ? stream.chunk : next));
  }

  void fill(int slot, const Body& body) override {
    Stream& stream = at(slot);
    std::size_t used = 0;
    if (stream.packet >= 0) {
      used = 4 * stream.scales.elements(stream.packet);
      stream.scales.quantise(chunks_.part(in_, stream.chunk), stream.packet, body.elements.first(used), buffer_);
    }
    std::fill(body.elements.begin() + static_cast<std::ptrdiff_t>(used), body.elements.end(), std::byte{0});
    std::fill(body.exponents.begin(), body.exponents.end(), std::byte{0});
    const std::size_t next = announced(stream);
    if (chunks_.exists(next)) write_ranges(chunks_.part(in_, next), body.exponents, buffer_);
  }

  bool accept(int slot, const Packet& result) override {
    Stream& stream = at(slot);
    const std::size_t next = announced(stream);
    if (stream.packet >= 0) accept_sums(stream, result);
    if (next == kNone) {  // the same chunk has another packet
      ++stream.packet;
      ++extra_rounds_;
      return true;
    }
    if (!chunks_.exists(next)) return false;
    stream.scales.begin(result.exponents, chunks_.size(next));
    stream.chunk = next;
    stream.packet = 0;
    return true;
  }

  std::int64_t elements_done() const override { return done_; }
  std::uint32_t fingerprint() const override { return chunks_.fingerprint(kType<Number>); }
  std::int64_t extra_rounds() const override { return extra_rounds_; }

 private:
  struct Stream {
    std::size_t chunk;
    int packet;  // packet of that chunk; -1: only its exponents are sent
    FloatChunk<Number> scales;
  };
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  [[nodiscard]] Stream& at(int slot) { return streams_[static_cast<std::size_t>(slot)]; }
  [[nodiscard]] const Stream& at(int slot) const { return streams_[static_cast<std::size_t>(slot)]; }

  // The chunk whose exponents travel in this turn: in the last packet of a chunk, the next chunk, which may not exist.
  [[nodiscard]] std::size_t announced(const Stream& stream) const {
    if (stream.packet < 0) return stream.chunk;
    return is_last_packet(stream) ? stream.chunk + chunks_.window() : kNone;
  }
  [[nodiscard]] static bool is_last_packet(const Stream& stream) {
    return stream.packet + 1 == stream.scales.packets();
  }
  [[nodiscard]] std::size_t blocks(std::size_t chunk) const {
    return (chunks_.size(chunk) + block_elements_ - 1) / block_elements_;
  }

  void accept_sums(Stream& stream, const Packet& result) {
    const std::span<Number> mine = chunks_.part(out_, stream.chunk);
    const auto sums = result.elements.first(4 * stream.scales.elements(stream.packet));
    stream.scales.accept(sums, stream.packet, mine, buffer_);
    if (is_last_packet(stream)) done_ += static_cast<std::int64_t>(mine.size());
  }

  Chunks chunks_;
  std::size_t block_elements_;
  std::span<const Number> in_;
  std::span<Number> out_;
  std::vector<Stream> streams_;
  BlockBuffer buffer_;
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
