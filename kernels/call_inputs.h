// The inputs of a call, in one piece of memory that is sent to the device before the steps: the tokens, where
// they stand, their rotations and the page tables of their sequences. Its shape depends on the number of tokens alone,
// so that a CUDA graph can be run again. On the host there are two of them: while those of a batch that is on its way
// may not be touched, the other ones can be filled in.
#pragma once

#include <vector>

#include "engine/backend.h"
#include "kernels/device_layout.h"
#include "kernels/launches.h"

namespace qgen::QGEN_BACKEND {

DrawSettings draw_settings(const TokenChoice& choice);

class CallInputs {
 public:
  // For calls of up to `tokens`, of which up to `scored` have scores.
  CallInputs(const Plan& plan, const EngineOptions& options, const CacheLayout& layout, int64_t tokens, int64_t scored);
  void lay_out(DeviceLayout& memory) { device_ = memory.take<std::byte>(int64_t(places(most_tokens_).bytes)); }
  // Once that is real memory.
  void allocate() {
    for (PinnedMemory& side : host_) side = PinnedMemory(places(most_tokens_).bytes, "inputs");
  }

  // Into those of a side, 0 or 1.
  void fill(const Batch& batch, int side);
  // Whether both sides say the same but for which token it is, of batches of one token.
  bool differ_in_token_alone() const;
  // What was filled in last, of this side, to the device: by a copy, or by the first kernel where it is little.
  void send(Stream& stream, int side) const { copy_to_device(stream, device_, host_[side].data(), now_.bytes); }
  bool can_go_in_passing(size_t tokens) const {
    return tokens <= kMostTokensInPassing && now_.bytes <= kMostBytesInPassing;
  }
  InPassing in_passing(int side) const { return {host_[side].data(), device_, int64_t(now_.bytes)}; }
  const int32_t* host_tokens(int side) const {
    return reinterpret_cast<const int32_t*>(host_[side].data() + now_.tokens);
  }

  // On the device, of the batch that was filled in.
  const int32_t* tokens() const { return at<int32_t>(now_.tokens); }
  const int32_t* positions() const { return at<int32_t>(now_.positions); }
  const int32_t* sequences() const { return at<int32_t>(now_.sequences); }
  const int32_t* scored() const { return at<int32_t>(now_.scored); }
  const DrawSettings* draw() const { return at<DrawSettings>(now_.draw); }
  // As many as the call has tokens, so that a CUDA graph does not depend on how many there are.
  Segments segments() const {
    return {at<int32_t>(now_.segments), at<int32_t>(now_.slots),      at<int32_t>(now_.new_slots),
            at<int32_t>(now_.marked),   at<int32_t>(now_.mark_slots), segments_};
  }
  const int32_t* tables(int32_t group) const { return at<int32_t>(now_.tables[size_t(group)]); }
  // Of a rope of the plan; -1: none.
  Rotation rotation(int32_t rope) const;

 private:
  // Each warp that looks a token up reads which one it is from the host's memory: of many tokens more than a copy
  // costs.
  static constexpr size_t kMostTokensInPassing = 8;
  // The executor's are so few that its tests see both ways.
#if defined(QGEN_SIMT)
  static constexpr size_t kMostBytesInPassing = 2 << 10;
#else
  static constexpr size_t kMostBytesInPassing = 64 << 10;
#endif
  static constexpr size_t kPiece = 16;

  // Byte offsets.
  struct Places {
    size_t tokens, positions, sequences, scored, segments, slots, new_slots, marked, mark_slots, draw, bytes;
    std::vector<size_t> tables;    // of each group
    std::vector<size_t> cos, sin;  // of each rope
  };
  Places places(int64_t tokens) const;
  template <typename T>
  const T* at(size_t place) const {
    return reinterpret_cast<const T*>(device_ + place);
  }

  const Plan& plan_;
  const CacheLayout& layout_;
  int64_t most_tokens_, most_scored_, most_sequences_;
  int segments_ = 0;
  Places now_;
  std::byte* device_ = nullptr;
  PinnedMemory host_[2];
};

}  // namespace qgen::QGEN_BACKEND
