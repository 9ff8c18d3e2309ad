// Placement of halo regions in networks with branches.
#include "weft/spatial/nn/halo_region.h"

#include <gmock/gmock.h>

namespace weft::spatial::nn {
namespace {

using Chains = std::vector<std::vector<std::int64_t>>;

RegionCandidate exchanging(std::int64_t source, std::int64_t users = 1) { return {source, users, true, true}; }
RegionCandidate elementwise(std::int64_t source, std::int64_t users = 1) { return {source, users, true, false}; }
RegionCandidate other(std::int64_t source) { return {source, 1, false, false}; }

TEST(RegionChainsTest, StartsAndEndsWithALayerThatExchanges) {
  EXPECT_EQ(region_chains({elementwise(-1), exchanging(0), elementwise(1), exchanging(2), elementwise(3)}),
            (Chains{{1, 2, 3}}));
}

TEST(RegionChainsTest, NeedsTwoExchanges) {
  EXPECT_TRUE(region_chains({exchanging(-1), elementwise(0), elementwise(1)}).empty());
  EXPECT_TRUE(region_chains({}).empty());
}

TEST(RegionChainsTest, OtherLayersEndARegion) {
  EXPECT_EQ(region_chains({exchanging(-1), exchanging(0), other(1), exchanging(2), exchanging(3)}),
            (Chains{{0, 1}, {3, 4}}));
}

TEST(RegionChainsTest, AnOutputWithTwoReadersEndsARegion) {
  EXPECT_TRUE(region_chains({exchanging(-1, 2), exchanging(0), exchanging(0)}).empty());
  EXPECT_EQ(region_chains({exchanging(-1, 2), exchanging(0), exchanging(0), exchanging(1)}), (Chains{{1, 3}}));
}

}  // namespace
}  // namespace weft::spatial::nn
