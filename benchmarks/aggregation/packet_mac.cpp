// The time of one packet tag: AES-128-GMAC as the packets use it, compared with other standard MACs of OpenSSL.
#include <openssl/evp.h>
#include <openssl/params.h>

#include <cstring>
#include <stdexcept>

#include "benchmarks/timing.h"
#include "weft/aggregation/packet/gmac.h"
#include "weft/mpi/environment.h"

namespace {

constexpr int kTags = 1000;

// A MAC whose context is reused, through OpenSSL's general interface. `rekey` sets the key for every message, as
// Poly1305 and SipHash require.
class OpensslMac {
 public:
  OpensslMac(const char* name, std::size_t key_bytes, bool rekey, std::string cipher = "")
      : context_(EVP_MAC_CTX_new(EVP_MAC_fetch(nullptr, name, nullptr))), key_bytes_(key_bytes), rekey_(rekey) {
    const OSSL_PARAM parameters[] = {
        cipher.empty() ? OSSL_PARAM_construct_end() : OSSL_PARAM_construct_utf8_string("cipher", cipher.data(), 0),
        OSSL_PARAM_construct_end()};
    if (EVP_MAC_init(context_, key_, key_bytes_, parameters) != 1) throw std::runtime_error("EVP_MAC_init failed");
  }

  void tag(const std::vector<std::byte>& message) {
    unsigned char result[32];
    std::size_t length = 0;
    EVP_MAC_init(context_, rekey_ ? key_ : nullptr, rekey_ ? key_bytes_ : 0, nullptr);
    EVP_MAC_update(context_, reinterpret_cast<const unsigned char*>(message.data()), message.size());
    EVP_MAC_final(context_, result, &length, sizeof result);
  }

 private:
  EVP_MAC_CTX* context_;
  unsigned char key_[32] = {1, 2, 3};
  std::size_t key_bytes_;
  bool rekey_;
};

void tag_all(weft::aggregation::Gmac& gmac, const std::vector<std::byte>& message) {
  static std::uint64_t sequence = 0;
  for (int i = 0; i < kTags; ++i) {
    weft::aggregation::GmacNonce nonce{};
    std::memcpy(nonce.data(), &++sequence, sizeof sequence);
    static_cast<void>(gmac.tag(nonce, message));
  }
}

void tag_all(OpensslMac& mac, const std::vector<std::byte>& message) {
  for (int i = 0; i < kTags; ++i) mac.tag(message);
}

}  // namespace

int main(int argc, char** argv) {
  const weft::mpi::Environment environment(&argc, &argv);
  weft::aggregation::Gmac gmac(weft::aggregation::SenderKey{});
  OpensslMac poly1305("POLY1305", 32, true);
  OpensslMac siphash("SIPHASH", 16, true);
  OpensslMac cmac("CMAC", 16, false, "AES-128-CBC");
  for (const std::size_t bytes : {std::size_t{300}, std::size_t{1036}, std::size_t{4096}, std::size_t{8972}}) {
    const std::vector<std::byte> message(bytes, std::byte{7});
    const auto times = weft::benchmarks::compare({{"gmac", [&] { tag_all(gmac, message); }},
                                                  {"poly1305", [&] { tag_all(poly1305, message); }},
                                                  {"siphash", [&] { tag_all(siphash, message); }},
                                                  {"cmac", [&] { tag_all(cmac, message); }}},
                                                 1, 31, weft::mpi::CommView::world());
    const double each = 1000.0 / kTags;
    const std::string name = "aggregation/packet_mac/" + std::to_string(bytes);
    weft::benchmarks::report(name, times[0] * each, "Poly1305", times[1] * each, "ns");
    weft::benchmarks::report(name, times[0] * each, "SipHash-2-4", times[2] * each, "ns");
    weft::benchmarks::report(name, times[0] * each, "AES-128-CMAC", times[3] * each, "ns");
  }
  return 0;
}
