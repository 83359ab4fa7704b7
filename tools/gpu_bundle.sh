#!/usr/bin/env bash
# Writes a folder that runs on any x86-64 Linux with an NVIDIA driver (glibc 2.34 and later): the program, the tests of the
# kernels with their goldens, the program that times them, and the libraries, documents and licenses of a release
# (tools/portable/pack.sh), with run.sh (tools/gpu_bundle/), which says what to do with it; and a tar file of it.
#   tools/gpu_bundle.sh BUILD_FOLDER OUT_FOLDER
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/portable/pack.sh
build=${1:?usage: tools/gpu_bundle.sh BUILD_FOLDER OUT_FOLDER}
out=${2:?usage: tools/gpu_bundle.sh BUILD_FOLDER OUT_FOLDER}
most_bytes=$((63 << 20))

rm -rf "$out" "$out.tar"
pack_programs "$build" "$out" "$build/cuda/qgen" "$build/tests/qgen_gpu_tests" "$build/cuda/qgen_gpu_probe"
pack_documents "$out" "$build/cuda/qgen" doctest-dev

cp tools/gpu_bundle/run.sh "$out/"
mkdir -p "$out/tests"
cp -r tests/golden "$out/tests/"
rm -f "$out"/tests/golden/*/expected/weights.safetensors  # what loading makes of matrices: a test without a GPU
# Of the families that have one in BF16 and one in FP8, whose method Llama has as well, the first will do.
for golden in "$out"/tests/golden/*-fp8; do
  # But for those that sequences share a batch with.
  if [ -d "${golden%-fp8}-bf16" ] && ! grep -q "\"$(basename "$golden")\"" tests/together.h; then rm -rf "$golden"; fi
done
rm -r "$out/tests/golden/gemma4-small-bf16"  # the one in FP8 is there
# Of storage layouts (GPTQ, AWQ, HQQ, shards, ...) whose canonical weights are those of other goldens.
for golden in llama-shards-index qwen3-shards-bare llama-ct-fp8-{block,channel,tensor} llama-fp8-channel-1d llama-fp8-tensor-inv \
    llama-bnb-int8 llama-gptq{4,8}-v1 qwen2-gptq8-v2 qwen2-awq llama-ct-pack8 qwen3-ct-pack4 llama-hqq-axis0 mistral-hqq-axis1 \
    mistral-nested-fp8 mistral-layers-fp8 mistral-fp8-tensor llama-ct-int8-gidx llama4-separate-fp8 qwen3_5_moe-separate-fp8 qwen3-gguf; do
  rm -r "$out/tests/golden/$golden"
done
# Of other methods that Llama has as well.
for golden in mistral qwen2 qwen3; do rm -r "$out/tests/golden/$golden-ct-int8-channel"; done
# Of weights in F32: Llama has them, and GPT-2 in BF16 is there.
rm -r "$out/tests/golden/gpt2-f32"
# Wider ones of families that are there, for blocks of GGUF files.
for golden in ernie4_5_moe glm4_moe_lite granite_hybrid lfm2 nemotron_h qwen3_5 qwen3_next; do rm -r "$out/tests/golden/$golden-wide-bf16"; done
# Of families that differ from another one in names and in what is computed on the host.
for golden in kimi_k2 seed_oss exaone4-full hunyuan_moe minimax_m2 ministral olmoe stablelm-norms arcee nemotron qwen2vl qwen2_5vl \
  glm4v granitemoe granitemoeshared lfm2_moe internlm3 solar_open dots1 exaone_moe mixtral glm_moe_dsa cwm iquestcoder jais2 exaone hyperclovax \
  mellum hy_v3 youtu sarvam_mla sarvam_moe bailing_moe bailing_moe-first bamba granite_swa granitemoe_swa laguna-elements \
  deepseek_v3 deepseek_v32 glm4_moe_lite qwen3_5 qwen3vl qwen3_vl_moe smollm3 ernie4_5 chatglm olmo3 glm mistral qwen2 apertus; do
  rm -r "$out/tests/golden/$golden-bf16"
done
# Of routers with groups, latents around experts and norms of groups, which others have as well.
for golden in deepseek_v2-groups-fp8 nemotron_h-latent-bf16 falcon_h1-norm-fp8; do rm -r "$out/tests/golden/$golden"; done
# Rotations are made on the host: one kind with a length of its own will do.
for golden in llama-rope-{linear,llama3,yarn} qwen2-rope-yarn-mscale qwen3-rope-yarn-betas; do rm -r "$out/tests/golden/$golden"; done
# Layers that draft, of a model with and one without recurrent states.
mkdir -p "$out/tests/golden-draft"
for golden in qwen3_next glm4_moe; do cp -r "tests/golden-draft/$golden" "$out/tests/golden-draft/"; done
rm -f "$out"/tests/golden-draft/*/expected/model.gguf
cp -r bench/configs bench/torch_speed.py bench/make_safetensors.py bench/versus.py "$out/bench/"
mkdir -p "$out/models"
for model in stories260K-FP8 stories260K-w8a8; do cp -r "models/$model" "$out/models/"; done

bytes=$(find "$out" -type f -printf '%s\n' | awk '{ bytes += $1 } END { print bytes }')
if [ "$bytes" -gt "$most_bytes" ]; then
  echo "gpu-bundle: $out is too large (expected at most $most_bytes bytes, found $bytes)" >&2
  exit 1
fi
tar -C "$(dirname "$out")" -cf "$out.tar" "$(basename "$out")"
echo "gpu-bundle: $out and $out.tar, $((bytes >> 20)) MiB; on a machine with a GPU: $(basename "$out")/run.sh"
